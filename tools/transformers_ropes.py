"""What transformers makes of each way to scale a rope."""

import json
from pathlib import Path

import transformers

ROPE_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
ROPE_LONG = {
    "short_factor": [1.0 + i / 8 for i in range(16)],
    "long_factor": [1.0 + i * i / 4 for i in range(16)],
}
# (name, rope_scaling, other keys, the length that the frequencies are for)
ROPES = [
    ("linear", {"rope_type": "linear", "factor": 4.0}, {}, 100),
    ("mrope", {"rope_type": "default", "mrope_section": [4, 6, 6]}, {}, 100),
    ("dynamic", {"rope_type": "dynamic", "factor": 3.0}, {}, 3 * 4096),
    ("yarn", ROPE_YARN, {}, 100),
    ("yarn, exact ramp", ROPE_YARN | {"truncate": False}, {}, 100),
    ("yarn, beta", ROPE_YARN | {"beta_fast": 16.0, "beta_slow": 2.0}, {}, 100),
    ("yarn, one step", ROPE_YARN | {"beta_fast": 8.0, "beta_slow": 8.0, "truncate": False}, {}, 100),
    ("yarn, attention factor", ROPE_YARN | {"attention_factor": 0.75}, {}, 100),
    ("yarn, mscale", ROPE_YARN | {"mscale": 1.5, "mscale_all_dim": 0.5}, {}, 100),
    ("yarn, mscale alone", ROPE_YARN | {"mscale": 1.5}, {}, 100),
    ("yarn, less than 1", ROPE_YARN | {"factor": 0.5}, {}, 100),
    ("yarn, no original", {"rope_type": "yarn", "factor": 4.0}, {}, 100),
    ("yarn, small base", ROPE_YARN, {"rope_theta": 10.0}, 100),
    ("yarn, partial", ROPE_YARN, {"partial_rotary_factor": 0.25}, 100),
    ("longrope, long", {"rope_type": "longrope", **ROPE_LONG, "original_max_position_embeddings": 512}, {}, 513),
    ("longrope, short", {"rope_type": "longrope", **ROPE_LONG, "original_max_position_embeddings": 512}, {}, 512),
    ("longrope, beside", {"rope_type": "longrope", **ROPE_LONG}, {"original_max_position_embeddings": 512}, 4096),
    ("longrope, factor", {"rope_type": "longrope", **ROPE_LONG, "factor": 32.0}, {}, 4097),
    ("longrope, no growth", {"rope_type": "longrope", **ROPE_LONG}, {}, 4096),
    ("longrope, attention factor", {"rope_type": "longrope", **ROPE_LONG, "attention_factor": 1.5}, {}, 100),
    (
        "llama3",
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        | {"original_max_position_embeddings": 512},
        {},
        100,
    ),
]


def make_ropes(output: Path) -> None:
    """ropes.json: what transformers makes of each scaling for heads of 32 values."""
    cases = []
    for name, scaling, rest, length in ROPES:
        config = {"rope_theta": 10000.0, "max_position_embeddings": 4096} | rest | {"rope_scaling": scaling}
        understood = transformers.LlamaConfig(hidden_size=64, num_attention_heads=2, **json.loads(json.dumps(config)))
        kind = scaling["rope_type"]
        if kind == "default":
            rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(understood)
            inv_freq, magnitude = rotary.inv_freq, rotary.attention_scaling
        else:
            function = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind]
            inv_freq, magnitude = function(understood, "cpu", seq_len=length)
        cases.append(
            {
                "name": name,
                "config": config,
                "length": length,
                "inv_freq": [float(f"{value:.9g}") for value in inv_freq.tolist()],
                "magnitude": magnitude,
            }
        )
    lines = ",\n".join(json.dumps(case) for case in cases)
    (output / "ropes.json").write_text(f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n]}}\n')
    print(f"ropes.json: {len(cases)} scalings")

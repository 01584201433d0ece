#!/usr/bin/env python3
"""Writes tests/fixtures/transformers: tiny random checkpoints with the logits that transformers computes for them.

    python tools/make_transformers_fixtures.py [CASE...]

Needs torch, transformers, tokenizers, safetensors, gguf and numpy. The layout is described in the README beside the
fixtures. Everything is seeded: the same package versions write the same bytes.
"""

import argparse
import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

OUTPUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "transformers"
POSITIONS = 40
VOCAB = 300
GREEDY_PROMPT, GREEDY_STEPS = 10, 24

# Regular expressions of the published Llama 3 and Qwen 2 tokenizers, and the name of their splitter in GGUF.
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "It's 2024: we've 1,234,567 reasons, don't we?",
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 22))\n",
    "naïve café — déjà vu; straße",
    "你好，世界。今天天气很好。",
    "Привет, мир! Как дела?",
    "emoji 😀👩‍👩‍👧 and 🇫🇷",
    "tabs\tand   spaces  \n  end",
    "the theory of the other thing",
] * 4
TEXTS = [
    "Hello, world!",
    " leading space and trailing ",
    "I'll say it's 12345 times",
    "x = [1, 2, 3]  # code\n\n  y",
    "你好 world 😀",
    "é́ combining",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
    "\r\n\t  \n",
]


@dataclass
class Case:
    config: dict
    seed: int
    splitter: str  # "llama-bpe", "qwen2" or "gpt-2"
    stored: torch.dtype = torch.float32
    shards: int = 1
    gguf: str | None = None  # file name; written from the same weights
    stacked_experts: bool = False  # all experts of a layer in one tensor, else each in its own
    generation: dict = field(default_factory=dict)
    oracle: dict | None = None  # read by transformers in place of config, where it does not know the architecture


def dense(architecture: str, model_type: str, **rest) -> dict:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": VOCAB,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "max_position_embeddings": 512,
        "use_cache": True,
    } | rest


LLAMA = dense(
    "LlamaForCausalLM",
    "llama",
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=3,
    num_key_value_heads=1,
    intermediate_size=80,
    hidden_act="silu",
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    attention_bias=False,
    mlp_bias=False,
    rope_theta=10000.0,
    rope_scaling={
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    torch_dtype="float32",
)
MISTRAL = dense(
    "MistralForCausalLM",
    "mistral",
    hidden_size=60,
    num_hidden_layers=3,
    num_attention_heads=5,
    num_key_value_heads=5,
    head_dim=12,
    intermediate_size=92,
    hidden_act="silu",
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    sliding_window=8,
    rope_theta=10000.0,
    torch_dtype="float32",
)
QWEN2 = dense(
    "Qwen2ForCausalLM",
    "qwen2",
    hidden_size=56,
    num_hidden_layers=3,
    num_attention_heads=7,
    num_key_value_heads=1,
    intermediate_size=76,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    rope_theta=1000000.0,
    use_sliding_window=False,
    sliding_window=4096,
    max_window_layers=3,
    torch_dtype="float32",
)
QWEN3 = dense(
    "Qwen3ForCausalLM",
    "qwen3",
    hidden_size=40,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=72,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    attention_bias=False,
    use_sliding_window=False,
    sliding_window=None,
)
GEMMA3 = dense(
    "Gemma3ForCausalLM",
    "gemma3_text",
    hidden_size=42,
    num_hidden_layers=7,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=56,
    hidden_activation="gelu_pytorch_tanh",
    rms_norm_eps=1e-6,
    sliding_window=8,
    attention_bias=False,
    final_logit_softcapping=None,
    attn_logit_softcapping=None,
)
QWEN3_5 = dense(
    "Qwen3_5ForCausalLM",
    "qwen3_5_text",
    hidden_size=40,
    num_hidden_layers=5,
    full_attention_interval=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=24,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=12,
    linear_value_head_dim=40,
    linear_conv_kernel_dim=4,
    intermediate_size=56,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    dtype="float32",
    rope_parameters={
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [1, 1, 1],
        "mrope_interleaved": True,
    },
)
QWEN3_5_MOE = QWEN3_5 | dense(
    "Qwen3_5MoeForCausalLM",
    "qwen3_5_moe_text",
    hidden_size=32,
    num_hidden_layers=3,
    full_attention_interval=3,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=24,
    num_experts=12,
    num_experts_per_tok=2,
)
del QWEN3_5_MOE["intermediate_size"]
QWEN3_NEXT = QWEN3_5_MOE | dense(
    "Qwen3NextForCausalLM",
    "qwen3_next",
    tie_word_embeddings=False,
    intermediate_size=36,
    norm_topk_prob=True,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 72,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
}
LONGROPE = {
    "short_factor": [1.0, 1.05, 1.1, 1.25, 1.5, 2.0],
    "long_factor": [1.1, 1.4, 2.5, 6.0, 11.0, 20.0],
}
PHI3 = dense("Phi3ForCausalLM", "phi3", **SMALL, pad_token_id=2, partial_rotary_factor=0.75, sliding_window=None)
GRANITE = dense(
    "GraniteForCausalLM",
    "granite",
    **SMALL | {"tie_word_embeddings": False},
    embedding_multiplier=6.0,
    attention_multiplier=0.4,
    residual_multiplier=0.22,
    logits_scaling=3.0,
    attention_bias=False,
    mlp_bias=False,
)
MINICPM = dense(
    "MiniCPMForCausalLM", "minicpm", **SMALL, scale_emb=7, scale_depth=1.4, dim_model_base=24, num_experts=0
)
OLMO2 = dense("Olmo2ForCausalLM", "olmo2", **SMALL | {"tie_word_embeddings": False}, attention_bias=False)
GLM4 = dense(
    "Glm4ForCausalLM", "glm4", **SMALL, pad_token_id=2, head_dim=16, partial_rotary_factor=0.5, attention_bias=True
)
GEMMA2 = dense(
    "Gemma2ForCausalLM",
    "gemma2",
    hidden_size=42,
    num_hidden_layers=3,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=56,
    hidden_act="gelu_pytorch_tanh",
    hidden_activation="gelu_pytorch_tanh",
    rms_norm_eps=1e-6,
    sliding_window=8,
    attention_bias=False,
    query_pre_attn_scalar=16,
    attn_logit_softcapping=3.0,
    final_logit_softcapping=2.0,
    rope_theta=10000.0,
    torch_dtype="float32",
)
SMALL_LLAMA = dense("LlamaForCausalLM", "llama", **SMALL)
QWEN3_MOE = QWEN3 | dense(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=40,
    moe_intermediate_size=28,
    num_experts=12,
    num_experts_per_tok=3,
    norm_topk_prob=True,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    rope_theta=1000000.0,
    rope_scaling=None,
    torch_dtype="float32",
)
QWEN2_MOE = QWEN2 | dense(
    "Qwen2MoeForCausalLM",
    "qwen2_moe",
    hidden_size=42,
    num_hidden_layers=2,
    num_attention_heads=3,
    max_window_layers=2,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=36,
    num_experts=9,
    num_experts_per_tok=4,
    norm_topk_prob=False,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)
MIXTRAL = dense(
    "MixtralForCausalLM",
    "mixtral",
    hidden_size=36,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    intermediate_size=44,
    hidden_act="silu",
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    sliding_window=None,
    rope_theta=1000000.0,
    num_local_experts=5,
    num_experts_per_tok=2,
    torch_dtype="float32",
)

CASES = {
    "llama": Case(LLAMA, 1, "llama-bpe", gguf="llama.gguf"),
    "mistral": Case(MISTRAL, 2, "gpt-2", shards=2),
    "qwen2": Case(QWEN2, 3, "qwen2", generation={"eos_token_id": [1, 2]}),
    "qwen2-f16": Case(QWEN2 | {"torch_dtype": "float16"}, 4, "qwen2", stored=torch.float16),
    # rope and dtype in the spelling of newer exports
    "qwen3": Case(
        QWEN3 | {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "dtype": "float32"},
        5,
        "qwen2",
        gguf="qwen3.gguf",
    ),
    "qwen3-bf16": Case(
        QWEN3 | {"rope_theta": 1000000.0, "rope_scaling": None, "torch_dtype": "bfloat16"},
        6,
        "qwen2",
        stored=torch.bfloat16,
    ),
    # a scale that head_dim does not give, an own rope for local and (linearly scaled) global layers; no tie key
    "gemma3": Case(
        GEMMA3
        | {
            "query_pre_attn_scalar": 24,
            "dtype": "float32",
            "layer_types": ["sliding_attention"] * 2
            + ["full_attention"]
            + ["sliding_attention"] * 3
            + ["full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            },
        },
        7,
        "gpt-2",
    ),
    # older spelling, and only what a GGUF of the architecture can express: pattern 6, scale from head_dim
    "gemma3-old": Case(
        GEMMA3
        | {
            "query_pre_attn_scalar": 16,
            "torch_dtype": "float32",
            "sliding_window_pattern": 6,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
        },
        8,
        "gpt-2",
        gguf="gemma3.gguf",
    ),
    # 40 positions are more than the original context: the long factors
    "phi3": Case(
        PHI3
        | {
            "original_max_position_embeddings": 24,
            "rope_scaling": {"type": "longrope", **LONGROPE},
        },
        9,
        "gpt-2",
        gguf="phi3.gguf",
    ),
    # fewer than the original context: the short factors, for an engine that is told to stay within it
    "phi3-short": Case(
        PHI3
        | {
            "tie_word_embeddings": False,
            "sliding_window": 8,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                **LONGROPE,
            },
        },
        10,
        "gpt-2",
    ),
    "granite": Case(GRANITE, 11, "gpt-2", gguf="granite.gguf"),
    # transformers has no code for it; the numbers of its Granite can say the same
    "minicpm": Case(
        MINICPM,
        12,
        "gpt-2",
        gguf="minicpm.gguf",
        oracle=GRANITE
        | {
            "tie_word_embeddings": True,
            "embedding_multiplier": MINICPM["scale_emb"],
            "attention_multiplier": 16**-0.5,
            "residual_multiplier": MINICPM["scale_depth"] / MINICPM["num_hidden_layers"] ** 0.5,
            "logits_scaling": MINICPM["hidden_size"] / MINICPM["dim_model_base"],
        },
    ),
    "olmo2": Case(OLMO2, 13, "gpt-2", gguf="olmo2.gguf"),
    "glm4": Case(GLM4, 14, "gpt-2", gguf="glm4.gguf"),
    "gemma2": Case(GEMMA2, 15, "gpt-2", gguf="gemma2.gguf"),
    "llama-yarn": Case(
        SMALL_LLAMA
        | {
            "max_position_embeddings": 32,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 1.0,
                "beta_slow": 0.25,
            },
        },
        16,
        "llama-bpe",
        gguf="llama.gguf",
    ),
    # biases everywhere; 40 positions are factor times the trained 20, where a growing base has reached the fixed one
    "llama-dynamic": Case(
        SMALL_LLAMA
        | {
            "max_position_embeddings": 20,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_scaling": {"type": "dynamic", "factor": 2.0},
        },
        17,
        "llama-bpe",
    ),
    "qwen2-window": Case(
        dense("Qwen2ForCausalLM", "qwen2", **SMALL)
        | {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        18,
        "qwen2",
    ),
    "qwen3-window": Case(
        dense("Qwen3ForCausalLM", "qwen3", **SMALL)
        | {
            "num_hidden_layers": 3,
            "head_dim": 16,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        19,
        "qwen2",
    ),
    "qwen3-moe": Case(QWEN3_MOE, 21, "qwen2", gguf="qwen3moe.gguf"),
    # only layer 3 has experts: 0 and 2 by the step, 1 by name
    "qwen3-moe-sparse": Case(
        QWEN3_MOE | {"num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [1], "norm_topk_prob": False},
        22,
        "qwen2",
        stacked_experts=True,
    ),
    "qwen2-moe": Case(QWEN2_MOE, 23, "qwen2", gguf="qwen2moe.gguf"),
    "mixtral": Case(MIXTRAL | {"torch_dtype": "float16"}, 24, "gpt-2", stored=torch.float16, gguf="mixtral.gguf"),
    "qwen3_5-moe": Case(QWEN3_5_MOE, 10, "qwen2", stacked_experts=True, gguf="qwen35moe.gguf"),
    "qwen3-next": Case(QWEN3_NEXT, 11, "qwen2", gguf="qwen3next.gguf"),
    "qwen3_5": Case(QWEN3_5, 9, "qwen2", gguf="qwen35.gguf"),
}


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


def make_ropes() -> None:
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
    (OUTPUT / "ropes.json").write_text(f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n]}}\n')
    print(f"ropes.json: {len(cases)} scalings")


def build_tokenizer(splitter: str) -> tokenizers.Tokenizer:
    """Byte-level BPE of VOCAB entries: 3 special ones first, the 256 bytes, then merges."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=splitter == "llama-bpe"))
    if splitter == "gpt-2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        expression = LLAMA3_SPLIT if splitter == "llama-bpe" else QWEN2_SPLIT
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(expression), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    if splitter == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if tokenizer.get_vocab_size() != VOCAB:
        raise RuntimeError(f"the trained tokenizer has {tokenizer.get_vocab_size()} tokens, needed are {VOCAB}")
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: tokenizers.Tokenizer) -> None:
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "add_bos_token": False,
            "model_max_length": 512,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def oracle_config(folder: Path, case: Case) -> transformers.PretrainedConfig:
    if case.oracle is None:
        return transformers.AutoConfig.from_pretrained(folder)
    return transformers.AutoConfig.for_model(**case.oracle)


def is_hybrid(config: dict) -> bool:
    """Of gated DeltaNet and gated attention."""
    return "linear_num_key_heads" in config


def write_weights(folder: Path, case: Case) -> dict[str, torch.Tensor]:
    """Random weights under the names and shapes that transformers gives the architecture; returns them as stored."""
    config = oracle_config(folder, case)
    with torch.device("meta"):
        shapes = {
            name: tuple(parameter.shape)
            for name, parameter in transformers.AutoModelForCausalLM.from_config(config).named_parameters()
        }
    generator = np.random.default_rng(case.seed)
    gemma = "gemma" in case.config["model_type"]
    zero_centred = gemma or is_hybrid(case.config)
    tensors = {}
    for name, shape in shapes.items():
        values = generator.standard_normal(shape, dtype=np.float32)
        if "norm" in name:  # some store w where the others store 1 + w
            values = 0.3 * values + (0.0 if zero_centred and "linear_attn" not in name else 1.0)
        elif name.endswith((".bias", ".dt_bias", ".A_log")):
            values = 0.5 * values
        elif name.endswith("mlp.gate.weight"):
            # with the channel below: some experts are taken by nearly all rows, some by none
            values = values * (1.0 / np.sqrt(shape[-1]))
            values[:, 0] = np.linspace(3.0, -3.0, shape[0])
        elif "embed_tokens" in name:
            # where they are scaled up, they must not drown the layers
            values = (0.2 if gemma else 0.05 if case.config["model_type"] in ("granite", "minicpm") else 0.6) * values
            if "num_experts_per_tok" in case.config:
                values[:, 0] = 1.0
        else:
            values = values * (1.3 / np.sqrt(shape[-1]))
        tensors[name] = torch.from_numpy(values.astype(np.float32)).to(case.stored)
    if not case.stacked_experts:
        tensors = apart(tensors, case.config["model_type"])
    if case.shards == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return tensors
    weight_map = {}
    for shard in range(case.shards):
        name = f"model-{shard + 1:05d}-of-{case.shards:05d}.safetensors"
        part = dict(list(tensors.items())[shard :: case.shards])
        safetensors.torch.save_file(part, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))},
    )
    return tensors


def apart(tensors: dict[str, torch.Tensor], model_type: str) -> dict[str, torch.Tensor]:
    """Stacked experts as the tensors of published checkpoints, one matrix each."""
    result = {}
    for name, tensor in tensors.items():
        block, part = name.rsplit(".", 1)
        if not block.endswith("mlp.experts"):
            result[name] = tensor
            continue
        for expert, matrix in enumerate(tensor):
            if part == "gate_up_proj":
                gate, up = matrix.chunk(2)
                result[f"{block}.{expert}.gate_proj.weight"] = gate.contiguous()
                result[f"{block}.{expert}.up_proj.weight"] = up.contiguous()
            else:
                result[f"{block}.{expert}.down_proj.weight"] = matrix.contiguous()
    if model_type != "mixtral":
        return result
    names = {".mlp.": ".block_sparse_moe.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    for old, new in names.items():
        result = {name.replace(old, new): tensor for name, tensor in result.items()}
    return result


def write_expected(folder: Path, case: Case, tokenizer: tokenizers.Tokenizer) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        config=oracle_config(folder, case),
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    model.eval()
    check_understood(model, case)
    token_ids = np.random.default_rng(100 + case.seed).integers(0, VOCAB, POSITIONS)
    with torch.no_grad():
        logits = model(torch.from_numpy(token_ids)[None], use_cache=False).logits[0].numpy()
        sequence, gaps = list(map(int, token_ids[:GREEDY_PROMPT])), []
        for _ in range(GREEDY_STEPS):
            last = model(torch.tensor([sequence]), use_cache=False).logits[0, -1]
            best = torch.topk(last, 2)
            sequence.append(int(best.indices[0]))
            gaps.append(round(float(best.values[0] - best.values[1]), 4))
    if logits.shape != (POSITIONS, VOCAB) or not np.isfinite(logits).all():
        raise RuntimeError(f"{folder.name}: transformers gave logits of shape {logits.shape}, or some not finite")
    logits.astype("<f4").tofile(folder / "expected_logits.f32")
    write_json(
        folder / "expected.json",
        {
            "transformers": transformers.__version__,
            "torch": torch.__version__.split("+")[0],
            "tokenizers": tokenizers.__version__,
            "token_ids": list(map(int, token_ids)),
            "logits": {
                "file": "expected_logits.f32",
                "shape": [POSITIONS, VOCAB],
                "std": round(float(logits.std()), 4),
            },
            "greedy": {"prompt_ids": sequence[:GREEDY_PROMPT], "token_ids": sequence[GREEDY_PROMPT:], "top2_gap": gaps},
            "texts": [
                {
                    "text": text,
                    "ids": tokenizer.encode(text).ids,
                    "decoded": tokenizer.decode(tokenizer.encode(text).ids),
                    "decoded_all": tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False),
                }
                for text in TEXTS
            ],
        },
    )
    print(
        f"{folder.name}: {sum(p.numel() for p in model.parameters())} parameters, logits std {logits.std():.2f}, "
        f"smallest greedy gap {min(gaps)}"
    )


def check_understood(model, case: Case) -> None:
    """The expected values are worth nothing if transformers has read another model out of config.json than we meant."""
    config, wanted = model.config, case.config
    rotary = model.model.rotary_emb
    if wanted["model_type"] == "gemma3_text":
        sliding = [kind == "sliding_attention" for kind in config.layer_types]
        meant = wanted.get("layer_types")
        meant = [kind == "sliding_attention" for kind in meant] if meant else [(i + 1) % 6 != 0 for i in range(7)]
        assert sliding == meant, config.layer_types
        factor = 8.0 if "rope_parameters" in wanted else 1.0
        assert_rope(rotary.sliding_attention_inv_freq, 10000.0, 16, 1.0)
        assert_rope(rotary.full_attention_inv_freq, 1000000.0, 16, factor)
        assert model.model.layers[0].self_attn.scaling == wanted["query_pre_attn_scalar"] ** -0.5
        assert model.model.layers[0].self_attn.sliding_window == 8
    elif case.config is LLAMA:
        plain = 10000.0 ** (-torch.arange(0, 16, 2) / 16)
        ratio = plain / rotary.inv_freq
        assert torch.isclose(ratio[0], torch.tensor(1.0)) and torch.isclose(ratio[-1], torch.tensor(8.0)), ratio
    elif is_hybrid(wanted):
        interval = wanted["full_attention_interval"]
        assert [kind == "full_attention" for kind in config.layer_types] == [
            (i + 1) % interval == 0 for i in range(wanted["num_hidden_layers"])
        ], config.layer_types
        assert_rope(rotary.inv_freq, 10000000.0, wanted["head_dim"] // 4, 1.0)
    elif rotary.rope_type == "longrope":
        factors = [*LONGROPE["short_factor"]]
        assert_rope(rotary.inv_freq * torch.tensor(factors), 10000.0, 12, 1.0)  # before the first long sequence
        context = config.rope_parameters["original_max_position_embeddings"]
        assert context in (24, 64) and rotary.attention_scaling > 1, config.rope_parameters
    elif rotary.rope_type == "yarn":
        ratio = 10000.0 ** (-torch.arange(0, 16, 2) / 16) / rotary.inv_freq
        kept, mixed, slowed = ratio < 1.001, (ratio > 1.1) & (ratio < 3.9), ratio > 3.999
        assert kept.any() and mixed.any() and slowed.any(), ratio
    elif wanted["hidden_size"] == 64 or wanted["model_type"] == "gemma2":
        dim = model.model.layers[0].self_attn.head_dim * wanted.get("partial_rotary_factor", 1)
        assert_rope(rotary.inv_freq, 10000.0, int(dim), 1.0)
        assert rotary.rope_type == ("dynamic" if wanted["model_type"] == "llama" else "default")
    else:
        assert_rope(
            rotary.inv_freq,
            wanted.get("rope_theta", 1000000.0),
            model.model.layers[0].self_attn.head_dim,
            1.0,
        )
    if "num_experts_per_tok" in wanted:
        check_experts(model, wanted)
    if wanted["model_type"] in ("mistral", "gemma2") or wanted.get("use_sliding_window"):
        assert config.sliding_window == 8
    if wanted["model_type"] == "gemma2":
        assert config.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]
    if wanted.get("max_window_layers") == 1:
        assert config.layer_types == ["full_attention"] + ["sliding_attention"] * 2
    tied = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert tied == wanted.get("tie_word_embeddings", True)


def check_experts(model, wanted: dict) -> None:
    """Which layers have experts, and that their tokens are spread unevenly."""
    meant = [
        number not in wanted.get("mlp_only_layers", []) and (number + 1) % wanted.get("decoder_sparse_step", 1) == 0
        for number in range(wanted["num_hidden_layers"])
    ]
    layers = [layer.mlp for layer in model.model.layers]
    assert [hasattr(mlp, "experts") for mlp in layers] == meant
    chosen = {}
    for number, mlp in enumerate(layers):
        if meant[number]:
            mlp.gate.register_forward_hook(lambda _, __, output, number=number: chosen.update({number: output[2]}))
    tokens = torch.from_numpy(np.random.default_rng(1).integers(0, VOCAB, (1, POSITIONS)))
    model(tokens, use_cache=False)
    experts = wanted.get("num_experts", wanted.get("num_local_experts"))
    for indices in chosen.values():
        counts = torch.bincount(indices.flatten(), minlength=experts)
        print(f"rows of the experts: {counts.tolist()}")
        assert counts.max() >= 4 * counts.min(), counts
    assert chosen


def assert_rope(inv_freq: torch.Tensor, theta: float, dim: int, factor: float) -> None:
    assert torch.allclose(inv_freq, theta ** (-torch.arange(0, dim, 2) / dim) / factor, rtol=1e-5), inv_freq


PRE_NORM = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
SANDWICH_NORM = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GGUF_NAMES = {
    "gemma2": SANDWICH_NORM,
    "gemma3": SANDWICH_NORM,
    "olmo2": SANDWICH_NORM,
    "glm4": PRE_NORM | {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    "qwen35": {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "linear_attn.in_proj_qkv": "attn_qkv",
        "linear_attn.in_proj_z": "attn_gate",
        "linear_attn.in_proj_b": "ssm_beta",
        "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.in_proj_ba": "ssm_ba",
        "linear_attn.conv1d": "ssm_conv1d",
        "linear_attn.norm": "ssm_norm",
        "linear_attn.out_proj": "ssm_out",
    },
}
GGUF_COMMON = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
GGUF_ARCHITECTURES = {
    "gemma3_text": "gemma3",
    "qwen3_moe": "qwen3moe",
    "qwen2_moe": "qwen2moe",
    "mixtral": "llama",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_next": "qwen3next",
}
GGUF_PERMUTED = ("llama", "granite", "minicpm")


def gguf_name(arch: str, name: str) -> str:
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in top:
        return top[name]
    _, _, layer, rest = name.split(".", 3)
    if rest in ("linear_attn.A_log", "linear_attn.dt_bias"):
        return f"blk.{layer}." + {"A": "ssm_a", "d": "ssm_dt.bias"}[rest.split(".")[1][0]]
    part, kind = rest.rsplit(".", 1)
    if ".experts." in part:  # the older spelling, one tensor an expert
        _, _, expert, matrix = part.split(".")
        return f"blk.{layer}.ffn_{ {'w1': 'gate', 'w3': 'up', 'w2': 'down'}[matrix] }.{expert}.{kind}"
    family = "qwen35" if arch in ("qwen35moe", "qwen3next") else arch
    names = GGUF_COMMON | GGUF_NAMES.get(family, PRE_NORM)
    return f"blk.{layer}.{names[part]}.{kind}"


def write_gguf(path: Path, case: Case, tensors: dict[str, torch.Tensor], tokenizer: tokenizers.Tokenizer) -> None:
    config = case.config
    arch = GGUF_ARCHITECTURES.get(config["model_type"], config["model_type"])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    writer = gguf.GGUFWriter(path, arch)
    # llama.cpp looks for tokens that ours has not in files whose name holds "phi3"
    writer.add_name(f"tiny random {'phi' if arch == 'phi3' else arch}")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    if "intermediate_size" in config:
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_rope_freq_base(10000000.0 if is_hybrid(config) else config.get("rope_theta", 1000000.0))
    if arch in ("llama", "granite", "minicpm", "phi3", "glm4"):
        writer.add_rope_dimension_count(int(head_dim * config.get("partial_rotary_factor", 1)))
    else:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch in ("gemma2", "gemma3", "phi3"):
        writer.add_sliding_window(config["sliding_window"] or 0)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch in ("granite", "minicpm"):
        scales = case.oracle or config
        writer.add_embedding_scale(scales["embedding_multiplier"])
        writer.add_residual_scale(scales["residual_multiplier"])
        writer.add_logit_scale(scales["logits_scaling"])
    if arch == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
    add_scaling(writer, config)
    if is_hybrid(config):
        writer.add_rope_dimension_count(head_dim // 4)
        writer.add_rope_dimension_sections([1, 1, 1, 0])
        writer.add_full_attention_interval(config["full_attention_interval"])
        writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        writer.add_ssm_state_size(config["linear_key_head_dim"])
        writer.add_ssm_group_count(config["linear_num_key_heads"])
        writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
        writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    if "num_experts_per_tok" in config:
        writer.add_expert_count(config.get("num_experts", config.get("num_local_experts")))
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])

    document = json.loads(tokenizer.to_str())
    tokens = [token for token, _ in sorted(document["model"]["vocab"].items(), key=lambda item: item[1])]
    special = {token["content"] for token in document["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(case.splitter)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]]
    )
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

    stacks: dict[str, list[np.ndarray]] = {}
    for name, tensor in (unfused(config, tensors) if arch == "qwen3next" else apart(tensors, arch)).items():
        values = tensor.float().numpy()
        if ".mlp.experts." in name:
            _, _, layer, _, _, _, matrix, _ = name.split(".")
            stacks.setdefault(f"blk.{layer}.ffn_{matrix.removesuffix('_proj')}_exps.weight", []).append(values)
            continue
        if arch in GGUF_PERMUTED and name.endswith(("q_proj.weight", "k_proj.weight")):
            # row (head, half, j) goes to (head, 2 j + half): the file's rope turns adjacent pairs
            count = heads if "q_proj" in name else kv_heads
            values = values.reshape(count, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(values.shape)
        if arch.startswith("gemma") and "norm" in name:
            values = values + np.float32(1)
        if is_hybrid(config):
            values = hybrid_values(config, name, values)
        if name.endswith("shared_expert_gate.weight"):
            values = values[0]
        writer.add_tensor(gguf_name(arch, name), np.ascontiguousarray(values, dtype=np.float32))
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config["rope_theta"], head_dim, scaling))
    for length in ("short", "long"):
        if f"{length}_factor" in scaling:
            factors = np.array(scaling[f"{length}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)
    if arch == "qwen2moe":  # gate and up in one tensor, as newer converters write them
        for layer in range(config["num_hidden_layers"]):
            gates, ups = (stacks.pop(f"blk.{layer}.ffn_{part}_exps.weight") for part in ("gate", "up"))
            stacks[f"blk.{layer}.ffn_gate_up_exps.weight"] = [
                np.concatenate(both) for both in zip(gates, ups, strict=True)
            ]
    for name, matrices in stacks.items():
        writer.add_tensor(name, np.ascontiguousarray(np.stack(matrices), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_scaling(writer: gguf.GGUFWriter, config: dict) -> None:
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
    if scaling.get("type") == "longrope":
        context = config["original_max_position_embeddings"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(context)
        writer.add_rope_scaling_attn_factors(
            float(np.sqrt(1 + np.log(config["max_position_embeddings"] / context) / np.log(context)))
        )


def unfused(config: dict, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """in_proj_qkvz, whose rows are key head by key head, as in_proj_qkv and in_proj_z."""
    heads, key = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    result = {}
    for name, tensor in tensors.items():
        if not name.endswith("in_proj_qkvz.weight"):
            result[name] = tensor
            continue
        parts = tensor.reshape(heads, -1, tensor.shape[-1]).split([key, key, values, values], dim=1)
        q, k, v, z = (part.reshape(-1, tensor.shape[-1]) for part in parts)
        result[name.replace("qkvz", "qkv")] = torch.cat([q, k, v])
        result[name.replace("qkvz", "z")] = z
    return result


def hybrid_values(config: dict, name: str, values: np.ndarray) -> np.ndarray:
    """As converters store them: norms with one added, decays ready for use, value head hk * r + j at j * Hk + hk."""
    if "norm" in name and "linear_attn" not in name:
        return values + np.float32(1)
    if "linear_attn" not in name or name.endswith("linear_attn.norm.weight"):
        return values
    if name.endswith("A_log"):
        values = -np.exp(values)
    if name.endswith("conv1d.weight"):
        values = values[:, 0]
    if config["model_type"] == "qwen3_next":  # the one that keeps the order of value heads
        return values
    heads, dim = config["linear_num_key_heads"], config["linear_value_head_dim"]
    ratio = config["linear_num_value_heads"] // heads

    def tiled(part: np.ndarray, size: int) -> np.ndarray:
        return part.reshape(heads, ratio, size, -1).swapaxes(0, 1).reshape(part.shape)

    if name.endswith("out_proj.weight"):
        return tiled(values.T, dim).T
    if name.endswith("in_proj_z.weight"):
        return tiled(values, dim)
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        keys = 2 * heads * config["linear_key_head_dim"]
        return np.concatenate([values[:keys], tiled(values[keys:], dim)])
    return tiled(values, 1)


def llama3_divisors(theta: float, dim: int, scaling: dict) -> np.ndarray:
    """What divides each rotary frequency under the Llama 3.1 scaling rule."""
    result = []
    context = scaling["original_max_position_embeddings"]
    for i in range(0, dim, 2):
        wavelength = 2 * np.pi * theta ** (i / dim)
        smooth = (context / wavelength - scaling["low_freq_factor"]) / (
            scaling["high_freq_factor"] - scaling["low_freq_factor"]
        )
        result.append(1 / ((1 - min(max(smooth, 0), 1)) / scaling["factor"] + min(max(smooth, 0), 1)))
    return np.array(result, dtype=np.float32)


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=None if path.name == "expected.json" else 2, ensure_ascii=True) + "\n")


def make(name: str) -> None:
    case = CASES[name]
    folder = OUTPUT / name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", case.config)
    write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1} | case.generation)
    tokenizer = build_tokenizer(case.splitter)
    write_tokenizer(folder, tokenizer)
    tensors = write_weights(folder, case)
    write_expected(folder, case, tokenizer)
    if case.gguf:
        write_gguf(folder / case.gguf, case, tensors, tokenizer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}, ropes; all when none is given")
    cases = parser.parse_args().cases or [*CASES, "ropes"]
    unknown = [case for case in cases if case not in (*CASES, "ropes")]
    if unknown:
        parser.error(f"no case is called '{unknown[0]}'; known are {', '.join(CASES)}, ropes")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for case in cases:
        if case == "ropes":
            make_ropes()
        else:
            make(case)
    return 0


if __name__ == "__main__":
    sys.exit(main())

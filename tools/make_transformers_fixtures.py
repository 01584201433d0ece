#!/usr/bin/env python3
"""Writes tests/fixtures/transformers: tiny random checkpoints with the logits that transformers computes for them.

    python tools/make_transformers_fixtures.py [CASE...]

Needs torch, transformers, tokenizers, safetensors, gguf and numpy. The layout is described in the README beside the
fixtures. Everything is seeded: the same package versions write the same bytes.
"""

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers
from transformers_cases import CASES, LLAMA, LONGROPE, VOCAB, Case, is_hybrid
from transformers_gguf import apart, write_gguf
from transformers_ropes import make_ropes
from transformers_tokenizer import TEXTS, build_tokenizer, write_json, write_tokenizer

OUTPUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "transformers"
POSITIONS = 40
GREEDY_PROMPT, GREEDY_STEPS = 10, 24
LONG, LONG_ROWS = 150, 30  # of hybrids: over two borders of the 64 positions that transformers' DeltaNet takes at once


def oracle_config(folder: Path, case: Case) -> transformers.PretrainedConfig:
    if case.oracle is None:
        return transformers.AutoConfig.from_pretrained(folder)
    return transformers.AutoConfig.for_model(**case.oracle)


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
    if is_hybrid(case.config):
        write_long(folder, case, model)
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


def write_long(folder: Path, case: Case, model: transformers.PreTrainedModel) -> None:
    """The logits of the last positions of a long sequence."""
    token_ids = np.random.default_rng(200 + case.seed).integers(0, VOCAB, LONG)
    with torch.no_grad():
        logits = model(torch.from_numpy(token_ids)[None], use_cache=False).logits[0, -LONG_ROWS:].numpy()
    logits.astype("<f4").tofile(folder / "long_logits.f32")
    write_json(folder / "long.json", {"token_ids": list(map(int, token_ids)), "std": round(float(logits.std()), 4)})


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
            make_ropes(OUTPUT)
        else:
            make(case)
    return 0


if __name__ == "__main__":
    sys.exit(main())

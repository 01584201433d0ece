#!/usr/bin/env python3
"""Adds to a fixture of make_llama_fixtures.py the exact logits of its tokens, and says how far llama.cpp is off.

    python tools/add_exact_logits.py MODEL.gguf FIXTURE.json

Loads the file's weights, dequantised to float32, into transformers and feeds it every prompt and answer. Each case
gets `exact`: per step the exact logits of the tokens of `top`, in that order. llama.cpp rounds activations to 8 bits
and keys and values to float16, and so may the engine under test, in another direction: the tests' tolerances come from
the distances printed here. Needs torch, transformers and gguf. Reads the `llama` architecture only.
"""

import argparse
import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from make_llama_fixtures import write


def exact_model(path: Path):
    reader = gguf.GGUFReader(path)

    def value(key: str):
        return reader.fields[key].contents()

    if value("general.architecture") != "llama":
        raise SystemExit(f"{path}: architecture is {value('general.architecture')}, only llama is understood")
    heads, kv_heads = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = transformers.LlamaConfig(
        hidden_size=value("llama.embedding_length"),
        num_hidden_layers=value("llama.block_count"),
        intermediate_size=value("llama.feed_forward_length"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
        max_position_embeddings=value("llama.context_length"),
        rms_norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        tie_word_embeddings="output.weight" not in tensors,
        rope_parameters={"rope_type": "default", "rope_theta": value("llama.rope.freq_base")},
    )
    parts = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "q_proj": "attn_q",
        "k_proj": "attn_k",
        "v_proj": "attn_v",
        "o_proj": "attn_output",
        "gate_proj": "ffn_gate",
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
    }
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    state = {}
    for name in model.state_dict():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        pieces = name.split(".")
        tensor = tensors[top.get(name) or f"blk.{pieces[2]}.{parts[pieces[-2]]}.weight"]
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for part, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if part in name:  # back from rows for adjacent-pair rope
                weight = weight.reshape(count, -1, 2, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)
        state[name] = torch.from_numpy(np.array(weight))
    model.to_empty(device="cpu")
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("fixture", type=Path)
    arguments = parser.parse_args()
    model = exact_model(arguments.model)
    document = json.loads(arguments.fixture.read_text(encoding="utf-8"))
    cases = document["cases"]
    errors, flips = [], []
    for case in cases:
        sequence = case["prompt_ids"] + case["tokens"]
        first = len(case["prompt_ids"]) - 1
        with torch.no_grad():
            hidden = model.model(torch.tensor([sequence])).last_hidden_state[0, first:-1]
            logits = model.lm_head(hidden).numpy()
        case["exact"] = [
            [round(float(row[token]), 3) for token, _ in step] for row, step in zip(logits, case["top"], strict=True)
        ]
        for row, step in zip(logits, case["top"], strict=True):
            gap = step[0][1] - step[1][1]
            exact = float(row[step[0][0]] - row[step[1][0]])
            errors.append(gap - exact)
            if int(row.argmax()) != step[0][0]:
                flips.append(gap)
        print(f"{case['name']}: largest error of a gap {np.abs(errors[-len(case['top']) :]).max():.3f}", flush=True)
    document["made_by"]["transformers"] = transformers.__version__
    write(arguments.fixture, document)
    errors = np.abs(errors)
    print(
        f"{len(errors)} steps; error of the best-to-second gap: rms {np.sqrt((errors**2).mean()):.3f}, "
        f"99 % {np.quantile(errors, 0.99):.3f}, 99.9 % {np.quantile(errors, 0.999):.3f}, max {errors.max():.3f}; "
        f"{len(flips)} steps where the exact best token is another, largest gap there {max(flips, default=0):.3f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

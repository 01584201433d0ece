#!/usr/bin/env python3
"""Writes tests/fixtures/llama_cpp/qwen3moe.gguf, a tiny random mixture of quantised experts, and llama.cpp's logits.

    python tools/make_llama_moe_fixture.py

Needs llama-cpp-python, gguf and numpy. Seeded: the same package versions write the same bytes.
"""

import json
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Type
from make_llama_fixtures import FIXTURES, REPOSITORY, _version, quiet

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 256, 2, 2, 1, 32
EXPERTS, USED, INNER, VOCAB, TOKENS = 8, 3, 32, 300, 40
TOKENIZER = REPOSITORY / "tests" / "fixtures" / "transformers" / "qwen3-moe" / "tokenizer.json"


def q4_k(generator: np.random.Generator, shape: tuple[int, ...], std: float) -> np.ndarray:
    """Random blocks of Q4_K, whose values are d * scale * q - dmin * minimum: of mean 0 and about the wanted spread."""
    blocks = int(np.prod(shape)) // 256
    data = generator.integers(0, 256, (blocks, 144), dtype=np.uint8)
    d = np.full(blocks, std / 220, np.float16)
    data[:, 0:2] = d.view(np.uint8).reshape(blocks, 2)
    data[:, 2:4] = (d * np.float16(7.5)).view(np.uint8).reshape(blocks, 2)
    return data.reshape(*shape[:-1], shape[-1] // 256 * 144)


def write_model(path: Path) -> None:
    generator = np.random.default_rng(31)
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_name("tiny random qwen3moe")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(VOCAB)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    writer.add_expert_feed_forward_length(INNER)
    document = json.loads(TOKENIZER.read_text(encoding="utf-8"))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([token for token, _ in sorted(document["model"]["vocab"].items(), key=lambda item: item[1])])
    writer.add_token_merges([" ".join(merge) for merge in document["model"]["merges"]])
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)

    def add(name: str, shape: tuple[int, ...], kind: Type = Type.Q8_0, spread: float = 0.0) -> None:
        std = spread or 1.3 / np.sqrt(shape[-1])
        if kind == Type.Q4_K:
            data = q4_k(generator, shape, std)
        else:
            data = (std * generator.standard_normal(shape)).astype(np.float32)
            if name.endswith("norm.weight"):
                data += np.float32(1)
            if kind != Type.F32:
                data = gguf.quants.quantize(data, kind)
        writer.add_tensor(name, data, raw_dtype=kind)

    add("token_embd.weight", (VOCAB, HIDDEN), spread=0.6)
    add("output_norm.weight", (HIDDEN,), Type.F32, 0.3)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            add(f"{block}{norm}.weight", (HIDDEN,), Type.F32, 0.3)
        for norm in ("attn_q_norm", "attn_k_norm"):
            add(f"{block}{norm}.weight", (HEAD_DIM,), Type.F32, 0.3)
        add(f"{block}attn_q.weight", (HEADS * HEAD_DIM, HIDDEN))
        add(f"{block}attn_k.weight", (KV_HEADS * HEAD_DIM, HIDDEN))
        add(f"{block}attn_v.weight", (KV_HEADS * HEAD_DIM, HIDDEN))
        add(f"{block}attn_output.weight", (HIDDEN, HEADS * HEAD_DIM))
        add(f"{block}ffn_gate_inp.weight", (EXPERTS, HIDDEN), Type.F32, 2 / np.sqrt(HIDDEN))
        kind = (Type.Q4_K, Type.Q8_0)[layer]
        add(f"{block}ffn_gate_exps.weight", (EXPERTS, INNER, HIDDEN), kind)
        add(f"{block}ffn_up_exps.weight", (EXPERTS, INNER, HIDDEN), kind)
        add(f"{block}ffn_down_exps.weight", (EXPERTS, HIDDEN, INNER), (Type.Q8_0, Type.Q4_0)[layer])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> int:
    path = FIXTURES / "qwen3moe.gguf"
    write_model(path)
    # Of the seeds from 32 on, the first where no row's choice of experts hangs on how activations are rounded.
    token_ids = np.random.default_rng(39).integers(0, VOCAB, TOKENS).tolist()
    with quiet():
        model = llama_cpp.Llama(str(path), n_ctx=64, n_threads=2, logits_all=True, verbose=False)
        model.eval(token_ids)
    logits = np.array(model.scores[:TOKENS], dtype="<f4")
    if logits.shape != (TOKENS, VOCAB) or not np.isfinite(logits).all():
        raise RuntimeError(f"llama.cpp gave logits of shape {logits.shape}, or some not finite")
    logits.tofile(FIXTURES / "qwen3moe_logits.f32")
    (FIXTURES / "qwen3moe.json").write_text(
        json.dumps(
            {
                "llama_cpp_python": llama_cpp.__version__,
                "llama_cpp": _version(llama_cpp),
                "token_ids": token_ids,
                "logits": {"file": "qwen3moe_logits.f32", "shape": list(logits.shape)},
                "std": round(float(logits.std()), 4),
            }
        )
        + "\n"
    )
    print(f"{path.name}: {path.stat().st_size} bytes, logits std {logits.std():.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

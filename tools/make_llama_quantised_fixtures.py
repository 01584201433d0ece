#!/usr/bin/env python3
"""Writes tests/fixtures/llama_cpp/{qwen3moe,qwen35,qwen35moe,qwen35moe_nvfp4}.gguf, tiny random models, and llama.cpp's
logits of them.

    python tools/make_llama_quantised_fixtures.py [NAME...]

Their matrices are Q4_K where rows are long enough, else Q8_0 or Q4_0; those of qwen35moe_nvfp4 are NVFP4 instead of
Q4_K and, but for the embedding, have scales in tensors of their own, as of checkpoints of NVFP4. NAME_logits.f32 is
what llama.cpp computes from the file, where it rounds activations to int8; NAME_exact.f32 and `greedy` are of the same
weights in float32. Needs llama-cpp-python, gguf and numpy. Seeded: the same package versions write the same bytes.
"""

import json
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from ggml import quantise, rewrite
from gguf import GGMLQuantizationType as Type
from make_llama_fixtures import FIXTURES, REPOSITORY, TINY_PROMPT, _version, greedy, quiet

HIDDEN, HEAD_DIM, VOCAB, TOKENS = 256, 32, 300, 40
EXPERTS, USED, INNER = 8, 3, 32
KEY_HEADS, VALUE_HEADS, CONV_TAPS = 2, 4, 4  # of the DeltaNet, whose heads have HEAD_DIM too
TOKENIZER = REPOSITORY / "tests" / "fixtures" / "transformers" / "qwen3-moe" / "tokenizer.json"
# Of the weights, and of the tokens. For qwen3moe that is, of the seeds from 32 on, the first where no row's choice of
# experts hangs on how activations are rounded; for qwen35moe_nvfp4, from 143 on, the first where llama.cpp errs by less
# than 0.3 and little comes of its keeping the scales of activations in float16. With such scales the CPU device gives
# its logits to 1e-6 or, where a rounding falls otherwise, to 0.03.
SEEDS = {"qwen3moe": (31, 39), "qwen35": (41, 43), "qwen35moe": (51, 143), "qwen35moe_nvfp4": (61, 158)}


def q4_k(generator: np.random.Generator, shape: tuple[int, ...], std: float) -> np.ndarray:
    """Random blocks of Q4_K, whose values are d * scale * q - dmin * minimum: of mean 0 and about the wanted spread."""
    blocks = int(np.prod(shape)) // 256
    data = generator.integers(0, 256, (blocks, 144), dtype=np.uint8)
    d = np.full(blocks, std / 220, np.float16)
    data[:, 0:2] = d.view(np.uint8).reshape(blocks, 2)
    data[:, 2:4] = (d * np.float16(7.5)).view(np.uint8).reshape(blocks, 2)
    return data.reshape(*shape[:-1], shape[-1] // 256 * 144)


class Model:
    """A file that is being written."""

    def __init__(self, path: Path, name: str, layers: int, heads: int, kv_heads: int) -> None:
        self.generator = np.random.default_rng(SEEDS[name][0])
        self.heads, self.kv_heads = heads, kv_heads
        architecture, _, other = name.partition("_")
        self.nvfp4 = other == "nvfp4"
        writer = self.writer = gguf.GGUFWriter(path, architecture)
        writer.add_name(f"tiny random {name}")
        writer.add_context_length(512)
        writer.add_embedding_length(HIDDEN)
        writer.add_block_count(layers)
        writer.add_feed_forward_length(64)
        writer.add_head_count(heads)
        writer.add_head_count_kv(kv_heads)
        writer.add_key_length(HEAD_DIM)
        writer.add_value_length(HEAD_DIM)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(1e6)
        writer.add_vocab_size(VOCAB)

    def add_experts_keys(self) -> None:
        self.writer.add_expert_count(EXPERTS)
        self.writer.add_expert_used_count(USED)
        self.writer.add_expert_feed_forward_length(INNER)

    def add_tokenizer(self, pre: str) -> None:
        document = json.loads(TOKENIZER.read_text(encoding="utf-8"))
        vocabulary = sorted(document["model"]["vocab"].items(), key=lambda item: item[1])
        self.writer.add_tokenizer_model("gpt2")
        self.writer.add_tokenizer_pre(pre)
        self.writer.add_token_list([token for token, _ in vocabulary])
        self.writer.add_token_merges([" ".join(merge) for merge in document["model"]["merges"]])
        self.writer.add_eos_token_id(1)
        self.writer.add_add_bos_token(False)

    def add(
        self,
        name: str,
        shape: tuple[int, ...],
        kind: Type = Type.Q8_0,
        spread: float = 0.0,
        same: list[tuple[int, int]] | None = None,
    ) -> None:
        """`same`: pairs of rows of which the second becomes the first."""
        std = spread or 1.3 / np.sqrt(shape[-1])
        if self.nvfp4 and len(shape) > 1 and kind != Type.F32 and not name.startswith("token_embd"):
            self.add_scaled(name, shape, Type.NVFP4 if kind == Type.Q4_K else kind, std, same or [])
            return
        if kind == Type.Q4_K:
            data = q4_k(self.generator, shape, std)
        else:
            data = (std * self.generator.standard_normal(shape)).astype(np.float32)
            if name.endswith("norm.weight"):
                data += np.float32(1)
            if name.endswith("ssm_a"):
                data = -np.exp(data)
            if kind != Type.F32:
                data = gguf.quants.quantize(data, kind)
        for first, second in same or []:
            data[second] = data[first]
        self.writer.add_tensor(name, data, raw_dtype=kind)

    def add_scaled(
        self, name: str, shape: tuple[int, ...], kind: Type, std: float, same: list[tuple[int, int]]
    ) -> None:
        """Values to be multiplied by a scale of the tensor, or of each expert; and one of the inputs, for those who
        compute in NVFP4."""
        scale = self.generator.uniform(0.5, 2, shape[0] if len(shape) == 3 else 1).astype(np.float32)
        values = (std * self.generator.standard_normal(shape)).astype(np.float32)
        values /= scale.reshape(-1, *[1] * (len(shape) - 1))
        for first, second in same:
            values[second] = values[first]
        data = quantise(values.reshape(-1, shape[-1]), kind)
        self.writer.add_tensor(name, data.reshape(*shape[:-1], data.shape[-1]), raw_dtype=kind)
        stem = name.removesuffix("weight")
        self.writer.add_tensor(f"{stem}scale", scale)
        self.writer.add_tensor(f"{stem}input_scale", self.generator.uniform(0.5, 2, scale.shape).astype(np.float32))

    def add_top(self) -> None:
        self.add("token_embd.weight", (VOCAB, HIDDEN), spread=0.6)
        self.add("output_norm.weight", (HIDDEN,), Type.F32, 0.3)

    def add_attention(self, block: str, gated: bool, kind: Type) -> None:
        rows = self.heads * HEAD_DIM
        self.add(f"{block}attn_q.weight", ((2 if gated else 1) * rows, HIDDEN), kind)
        self.add(f"{block}attn_k.weight", (self.kv_heads * HEAD_DIM, HIDDEN), kind)
        self.add(f"{block}attn_v.weight", (self.kv_heads * HEAD_DIM, HIDDEN), kind)
        self.add(f"{block}attn_output.weight", (HIDDEN, rows))

    def add_delta_net(self, block: str) -> None:
        keys, values = KEY_HEADS * HEAD_DIM, VALUE_HEADS * HEAD_DIM
        channels = 2 * keys + values
        # Half of each key is the query: where the two are nearly orthogonal, the norm of what little the first tokens
        # read makes much of how activations are rounded.
        same = [(row, keys + row) for row in range(keys) if row % HEAD_DIM < HEAD_DIM // 2]
        self.add(f"{block}attn_qkv.weight", (channels, HIDDEN), Type.Q4_K, same=same)
        self.add(f"{block}attn_gate.weight", (values, HIDDEN), Type.Q4_K)
        self.add(f"{block}ssm_beta.weight", (VALUE_HEADS, HIDDEN))
        self.add(f"{block}ssm_alpha.weight", (VALUE_HEADS, HIDDEN))
        self.add(f"{block}ssm_conv1d.weight", (channels, CONV_TAPS), Type.F32, same=same)
        self.add(f"{block}ssm_a", (VALUE_HEADS,), Type.F32, 0.5)
        self.add(f"{block}ssm_dt.bias", (VALUE_HEADS,), Type.F32, 0.5)
        self.add(f"{block}ssm_norm.weight", (HEAD_DIM,), Type.F32, 0.3)
        self.add(f"{block}ssm_out.weight", (HIDDEN, values))

    def add_experts(self, block: str, kind: Type, down: Type, router_spread: float) -> None:
        self.add(f"{block}ffn_gate_inp.weight", (EXPERTS, HIDDEN), Type.F32, router_spread / np.sqrt(HIDDEN))
        self.add(f"{block}ffn_gate_exps.weight", (EXPERTS, INNER, HIDDEN), kind)
        self.add(f"{block}ffn_up_exps.weight", (EXPERTS, INNER, HIDDEN), kind)
        self.add(f"{block}ffn_down_exps.weight", (EXPERTS, HIDDEN, INNER), down)

    def close(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_qwen3moe(path: Path) -> None:
    model = Model(path, "qwen3moe", layers=2, heads=2, kv_heads=1)
    model.add_experts_keys()
    model.add_tokenizer("qwen2")
    model.add_top()
    for layer in range(2):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            model.add(f"{block}{norm}.weight", (HIDDEN,), Type.F32, 0.3)
        for norm in ("attn_q_norm", "attn_k_norm"):
            model.add(f"{block}{norm}.weight", (HEAD_DIM,), Type.F32, 0.3)
        model.add_attention(block, False, Type.Q8_0)
        model.add_experts(block, (Type.Q4_K, Type.Q8_0)[layer], (Type.Q8_0, Type.Q4_0)[layer], 2)
    model.close()


def write_hybrid(path: Path, name: str) -> None:
    """DeltaNet layers, and one of gated attention at the end."""
    moe = name.startswith("qwen35moe")
    layers = 2 if moe else 3
    model = Model(path, name, layers, heads=4, kv_heads=2)
    writer = model.writer
    writer.add_rope_dimension_count(HEAD_DIM // 4)
    writer.add_rope_dimension_sections([2, 1, 1, 0])
    writer.add_full_attention_interval(layers)
    writer.add_ssm_conv_kernel(CONV_TAPS)
    writer.add_ssm_state_size(HEAD_DIM)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_inner_size(VALUE_HEADS * HEAD_DIM)
    if moe:
        model.add_experts_keys()
        writer.add_expert_shared_feed_forward_length(INNER)
    model.add_tokenizer("qwen2")
    model.add_top()
    for layer in range(layers):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "post_attention_norm"):
            model.add(f"{block}{norm}.weight", (HIDDEN,), Type.F32, 0.3)
        if layer + 1 < layers:
            model.add_delta_net(block)
        else:
            for norm in ("attn_q_norm", "attn_k_norm"):
                model.add(f"{block}{norm}.weight", (HEAD_DIM,), Type.F32, 0.3)
            model.add_attention(block, True, Type.Q4_K)
        if moe:
            # A wide spread, so that an expert that is only just chosen has next to no weight.
            model.add_experts(block, Type.Q4_K, Type.Q8_0, 6)
            model.add(f"{block}ffn_gate_inp_shexp.weight", (HIDDEN,), Type.F32, 1 / np.sqrt(HIDDEN))
            model.add(f"{block}ffn_gate_shexp.weight", (INNER, HIDDEN), Type.Q4_K)
            model.add(f"{block}ffn_up_shexp.weight", (INNER, HIDDEN), Type.Q4_K)
            model.add(f"{block}ffn_down_shexp.weight", (HIDDEN, INNER))
        else:
            model.add(f"{block}ffn_gate.weight", (64, HIDDEN), Type.Q4_K)
            model.add(f"{block}ffn_up.weight", (64, HIDDEN), Type.Q4_K)
            model.add(f"{block}ffn_down.weight", (HIDDEN, 64))
    model.close()


def run(path: Path, token_ids: list[int]) -> tuple[np.ndarray, dict]:
    """The logits of every token, and what follows the first of them greedily."""
    with quiet():
        model = llama_cpp.Llama(str(path), n_ctx=64, n_threads=2, logits_all=True, type_k=0, type_v=0, flash_attn=False)
        model.eval(token_ids)
        logits = np.array(model.scores[:TOKENS], dtype="<f4")
        answer = greedy(model, token_ids[:TINY_PROMPT])
        model.close()
    if logits.shape != (TOKENS, VOCAB) or not np.isfinite(logits).all():
        raise RuntimeError(f"llama.cpp gave logits of shape {logits.shape}, or some not finite")
    return logits, answer


def make(name: str) -> None:
    path = FIXTURES / f"{name}.gguf"
    if name == "qwen3moe":
        write_qwen3moe(path)
    else:
        write_hybrid(path, name)
    token_ids = np.random.default_rng(SEEDS[name][1]).integers(0, VOCAB, TOKENS).tolist()
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.name
        rewrite(gguf.GGUFReader(path), plain, lambda _: Type.F32)
        exact, answer = run(plain, token_ids)
    logits = run(path, token_ids)[0]
    logits.tofile(FIXTURES / f"{name}_logits.f32")
    exact.tofile(FIXTURES / f"{name}_exact.f32")
    (FIXTURES / f"{name}.json").write_text(
        json.dumps(
            {
                "llama_cpp_python": llama_cpp.__version__,
                "llama_cpp": _version(llama_cpp),
                "token_ids": token_ids,
                "shape": list(logits.shape),
                "std": round(float(exact.std()), 4),
                "greedy": answer,
            }
        )
        + "\n"
    )
    error = (logits - exact) / exact.std()
    print(
        f"{path.name}: {path.stat().st_size} bytes, logits std {exact.std():.2f}, of which the rounded ones are off by"
    )
    print(f"  {np.abs(error).max():.3f} at worst, {np.sqrt((error**2).mean()):.4f} rms")


def main() -> int:
    names = sys.argv[1:] or list(SEEDS)
    if unknown := [name for name in names if name not in SEEDS]:
        print(f"make_llama_quantised_fixtures: no {unknown[0]}; known are {', '.join(SEEDS)}", file=sys.stderr)
        return 2
    for name in names:
        make(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

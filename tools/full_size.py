#!/usr/bin/env python3
"""Loads a file of the shape of Qwen3-30B-A3B, all zeros and sparse on disk, and checks what that costs.

    python tools/full_size.py [FORMAT]      Q2_K when not given; takes some 11 GB of memory

Prints the peak memory over what weights, KV pool and workspace need, and fails above a tenth of the weights.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import gguf
import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "python"))
from vllm_backend.native import open_library  # noqa: E402

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, EXPERTS, USED, FFN, VOCAB = 2048, 48, 32, 4, 128, 128, 8, 768, 151936
TOKENS = 8


def tensors():
    """Names and shapes, outermost first; None for the format asked for."""
    yield "token_embd.weight", (VOCAB, HIDDEN), None
    yield "output.weight", (VOCAB, HIDDEN), None
    yield "output_norm.weight", (HIDDEN,), "F32"
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", (HIDDEN,), "F32"
        yield block + "ffn_norm.weight", (HIDDEN,), "F32"
        yield block + "attn_q_norm.weight", (HEAD_DIM,), "F32"
        yield block + "attn_k_norm.weight", (HEAD_DIM,), "F32"
        yield block + "attn_q.weight", (HEADS * HEAD_DIM, HIDDEN), None
        yield block + "attn_k.weight", (KV_HEADS * HEAD_DIM, HIDDEN), None
        yield block + "attn_v.weight", (KV_HEADS * HEAD_DIM, HIDDEN), None
        yield block + "attn_output.weight", (HIDDEN, HEADS * HEAD_DIM), None
        yield block + "ffn_gate_inp.weight", (EXPERTS, HIDDEN), "F32"
        yield block + "ffn_gate_exps.weight", (EXPERTS, FFN, HIDDEN), None
        yield block + "ffn_up_exps.weight", (EXPERTS, FFN, HIDDEN), None
        yield block + "ffn_down_exps.weight", (EXPERTS, HIDDEN, FFN), None


def write(path: Path, form: str) -> None:
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(6144)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(1e7)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    writer.add_expert_feed_forward_length(FFN)
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(code) for code in printable] + [chr(256 + n) for n in range(256 - len(printable))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*letters, "ab"])
    writer.add_token_merges(["a b"])
    for name, shape, fixed in tensors():
        kind = gguf.GGMLQuantizationType[fixed or form]
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        count = int(np.prod(shape))
        writer.add_tensor_info(name, shape, np.dtype(np.float32), count // block * block_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    size = path.stat().st_size
    size += -size % writer.data_alignment
    for _, shape, fixed in tensors():
        block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[fixed or form]]
        bytes_ = int(np.prod(shape)) // block * block_bytes
        size += bytes_ + -bytes_ % writer.data_alignment
    os.truncate(path, size)


def status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", nargs="?", default="Q2_K")
    form = parser.parse_args().format
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "full.gguf"
        write(path, form)
        library = open_library()
        before = status("VmRSS")
        began = time.monotonic()
        engine = library.load({"model_path": str(path), "max_num_seqs": 1, "max_model_len": 256, "num_blocks": 8}, {})
        loaded = time.monotonic()
        done = threading.Event()
        answers = []

        def deliver(chunk: bytes, last: bool) -> None:
            answers.append(json.loads(chunk))
            if last:
                done.set()

        fields = {"prompt": [1, 2, 3], "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        request = engine.submit(json.dumps(fields).encode(), deliver)
        done.wait()
        ended = time.monotonic()
        request.free()
        memory = engine.query({"query": "memory"})
        peak = status("VmHWM") - before
    if "error" in answers[-1] or answers[-1]["usage"]["completion_tokens"] != TOKENS:
        print(f"full_size: the engine answered {answers[-1]}", file=sys.stderr)
        return 1
    over = peak - sum(memory.values())
    print(
        f"{form}: weights {memory['weights'] / 1e9:.2f} GB, loaded in {loaded - began:.1f} s, {TOKENS} tokens in "
        f"{ended - loaded:.1f} s, peak {peak / 1e9:.2f} GB, {over / memory['weights']:.1%} of the weights over the plan"
    )
    return 0 if over <= memory["weights"] / 10 else 1


if __name__ == "__main__":
    sys.exit(main())

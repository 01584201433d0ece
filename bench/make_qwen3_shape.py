#!/usr/bin/env python3
"""Builds a random model of the shape of Qwen3-0.6B, which every engine can run: for speed and memory, not quality.

    python bench/make_qwen3_shape.py FOLDER [--gguf FILE.gguf]

FOLDER gets config.json, the real tokenizer and 1.19 GB of bfloat16 safetensors; FILE the same weights as BF16 GGUF.
Needs numpy, and gguf for the second. Seeded: the same seed writes the same weights.
"""

import argparse
import json
import shutil
import sys
import time
import zlib
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tools"))
from models import FetchError, fetch  # noqa: E402

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 1024, 28, 16, 8, 128, 3072, 151936
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "intermediate_size": FFN,
    "vocab_size": VOCAB,
    "tie_word_embeddings": True,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": LAYERS,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}
# name in the HF folder, name in GGUF, shape, standard deviation (None: all ones)
TOP = [
    ("model.embed_tokens.weight", "token_embd.weight", (VOCAB, HIDDEN), 0.03),
    ("model.norm.weight", "output_norm.weight", (HIDDEN,), None),
]
LAYER = [
    ("input_layernorm", "attn_norm", (HIDDEN,), None),
    ("self_attn.q_proj", "attn_q", (HEADS * HEAD_DIM, HIDDEN), 0.03),
    ("self_attn.k_proj", "attn_k", (KV_HEADS * HEAD_DIM, HIDDEN), 0.03),
    ("self_attn.v_proj", "attn_v", (KV_HEADS * HEAD_DIM, HIDDEN), 0.03),
    ("self_attn.o_proj", "attn_output", (HIDDEN, HEADS * HEAD_DIM), 0.02),
    ("self_attn.q_norm", "attn_q_norm", (HEAD_DIM,), None),
    ("self_attn.k_norm", "attn_k_norm", (HEAD_DIM,), None),
    ("post_attention_layernorm", "ffn_norm", (HIDDEN,), None),
    ("mlp.gate_proj", "ffn_gate", (FFN, HIDDEN), 0.03),
    ("mlp.up_proj", "ffn_up", (FFN, HIDDEN), 0.03),
    ("mlp.down_proj", "ffn_down", (HIDDEN, FFN), 0.02),
]


def tensors():
    yield TOP[0]
    for layer in range(LAYERS):
        for name, short, shape, deviation in LAYER:
            yield f"model.layers.{layer}.{name}.weight", f"blk.{layer}.{short}.weight", shape, deviation
    yield TOP[1]


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """float32 -> the upper half, rounded to nearest even (finite values only)."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_folder(folder: Path, seed: int, progress) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 151643, "eos_token_id": [151645, 151643]}) + "\n"
    )
    tokenizer = fetch("qwen3-tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, _, shape, _ in tensors():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = folder / "model.safetensors.partial"
    with open(partial, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        done = 0
        for name, _, shape, deviation in tensors():
            if deviation is None:
                values = np.ones(shape, np.float32)
            else:
                generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
                values = generator.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
            bfloat16_bits(values).tofile(file)
            done += 2 * values.size
            progress(f"safetensors: {done >> 20} of {offset >> 20} MB")
    partial.rename(folder / "model.safetensors")


def read_bits(folder: Path) -> dict[str, np.ndarray]:
    path = folder / "model.safetensors"
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__")
    mapped = np.memmap(path, np.uint8, "r", offset=8 + length)
    return {
        name: mapped[slice(*entry["data_offsets"])].view("<u2").reshape(entry["shape"])
        for name, entry in header.items()
    }


def write_gguf(path: Path, folder: Path, progress) -> None:
    import gguf

    progress("gguf: collecting")
    partial = path.with_name(path.name + ".partial")
    writer = gguf.GGUFWriter(partial, "qwen3")
    writer.add_name("random weights of the Qwen3-0.6B shape")
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(CONFIG["rope_theta"])
    writer.add_layer_norm_rms_eps(CONFIG["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)

    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [f"[PAD{index}]" for index in range(VOCAB)]
    types = [gguf.TokenType.UNUSED] * VOCAB
    for token, index in document["model"]["vocab"].items():
        tokens[index], types[index] = token, gguf.TokenType.NORMAL
    for added in document["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]]
    )
    writer.add_bos_token_id(151643)
    writer.add_eos_token_id(151645)
    writer.add_pad_token_id(151643)
    writer.add_add_bos_token(False)
    template = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    if template:
        writer.add_chat_template(template)

    bits = read_bits(folder)
    for name, short, shape, deviation in tensors():
        if deviation is None:
            writer.add_tensor(short, np.ones(shape, np.float32))
        else:
            writer.add_tensor(short, bits[name].view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    progress("gguf: writing")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gguf", type=Path, metavar="FILE")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    shown = [0.0]

    def progress(line: str) -> None:
        if time.monotonic() - shown[0] > 1:
            shown[0] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    try:
        write_folder(arguments.folder, arguments.seed, progress)
        print(arguments.folder)
        if arguments.gguf:
            write_gguf(arguments.gguf, arguments.folder, progress)
            print(arguments.gguf)
    except (FetchError, OSError, ImportError) as error:
        print(f"make_qwen3_shape: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

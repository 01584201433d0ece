#!/usr/bin/env python3
"""Makes tests/fixtures/weights/.

formats.json   blocks of every weight format with the values that gguf-py, numpy and ml_dtypes read (Q1_0, which
               gguf-py cannot read: ggml itself); quantised ones are held against ggml's values, bit for bit
tiny*.gguf     a model file of gguf-py, whole and split
hf/            a Hugging Face directory of two shards, written by the safetensors package
expected.json  metadata and tensors of both, as the packages read them back

Needs: pip install gguf llama-cpp-python ml_dtypes numpy safetensors
Usage: tools/make_weight_fixtures.py
"""

import json
import pathlib

import ggml
import gguf
import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "weights"

# Byte positions of the f16 scales inside a block.
SCALES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "MXFP4": [],
    "NVFP4": [],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "IQ1_S": [0],
    "IQ1_M": [],
    "Q1_0": [0],
}
# Byte positions and values of the scales of one byte inside a block.
BYTE_SCALES = {
    "MXFP4": ([0], [0, 1, 2, 120, 127, 250]),
    "NVFP4": (range(4), [0, 1, 7, 8, 0x3A, 0x7E, 0x7F, 0x80, 0xB3, 0xFF]),
}


def hex_of(array: np.ndarray) -> str:
    return np.ascontiguousarray(array).tobytes().hex()


def quantized(rng: np.random.Generator, name: str) -> dict:
    """Random codes under ordinary, negative, tiny (subnormal) and large scales."""
    qtype = gguf.GGMLQuantizationType[name]
    block_bytes = gguf.GGML_QUANT_SIZES[qtype][1]
    if name in BYTE_SCALES:
        positions, codes = BYTE_SCALES[name]
        blocks = rng.integers(0, 256, (6, block_bytes), dtype=np.uint8)
        for k, position in enumerate(positions):
            blocks[:, position] = np.roll(codes, k)[:6]
        return dequantized(blocks, qtype)
    scales = np.array([0.0123, -1.5, 3e-7, 900.0], dtype=np.float16)
    blocks = rng.integers(0, 256, (len(scales), block_bytes), dtype=np.uint8)
    for row, scale in zip(blocks, scales, strict=True):
        for k, position in enumerate(SCALES[name]):
            value = np.float16(scale * (1 if k == 0 else -0.7))
            row[position : position + 2] = np.frombuffer(value.tobytes(), dtype=np.uint8)
        if name == "IQ1_M":  # a nibble of the scale on top of each of the last four words
            bits = int(np.float16(scale).view(np.uint16))
            for k in range(4):
                row[49 + 2 * k] = (row[49 + 2 * k] & 15) | (bits >> (4 * k) & 15) << 4
    return dequantized(blocks, qtype)


def dequantized(blocks: np.ndarray, qtype: gguf.GGMLQuantizationType) -> dict:
    values = ggml.dequantise(blocks, qtype)
    if qtype != gguf.GGMLQuantizationType.Q1_0:
        other = gguf.quants.dequantize(blocks, qtype).astype(np.float32)
        assert (values.view(np.uint32) == other.view(np.uint32)).all()
    assert values.size == len(blocks) * gguf.GGML_QUANT_SIZES[qtype][0] and np.isfinite(values).all()
    return {"blocks": hex_of(blocks), "values": hex_of(values)}


def floats(rng: np.random.Generator) -> dict:
    bits = rng.integers(0, 1 << 16, 64, dtype=np.uint16)
    half = bits[np.isfinite(bits.view(np.float16))]
    brain = bits[np.isfinite(bits.view(ml_dtypes.bfloat16).astype(np.float32))]
    single = rng.normal(0, 10, 32).astype(np.float32)
    return {
        "F32": {"blocks": hex_of(single), "values": hex_of(single)},
        "F16": {"blocks": hex_of(half), "values": hex_of(half.view(np.float16).astype(np.float32))},
        "BF16": {"blocks": hex_of(brain), "values": hex_of(brain.view(ml_dtypes.bfloat16).astype(np.float32))},
    }


def roundings(rng: np.random.Generator) -> dict:
    """f32 values of every size, half-way cases among them, with the bits they become as f16 and bf16."""
    exponents = rng.integers(127 - 30, 127 + 20, 300, dtype=np.uint32)
    mantissas = rng.integers(0, 1 << 23, 300, dtype=np.uint32)
    mantissas[:100] &= ~np.uint32(0x1FFF)
    mantissas[:100] |= np.uint32(0x1000)  # half way between two f16
    mantissas[100:200] &= ~np.uint32(0xFFFF)
    mantissas[100:200] |= np.uint32(0x8000)  # half way between two bf16
    signs = rng.integers(0, 2, 300, dtype=np.uint32)
    values = ((signs << 31) | (exponents << 23) | mantissas).view(np.float32)
    edges = [0.0, -0.0, np.inf, -np.inf, 65504, 65519.996, 65520, 1e38, 3.4e38, 2**-24, 2**-25, 2**-25 * 1.0001, 1e-45]
    values = np.concatenate([values, np.array(edges, dtype=np.float32)])
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    return {"values": hex_of(values), "f16": hex_of(half), "bf16": hex_of(values.astype(ml_dtypes.bfloat16))}


def write_gguf(path: pathlib.Path, rng: np.random.Generator, **split) -> None:
    writer = gguf.GGUFWriter(path, "llama", **split)
    writer.add_name("tiny é")
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 60000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4_000_000_000)
    writer.add_int32("t.i32", -2_000_000_000)
    writer.add_float32("t.f32", 0.15625)
    writer.add_bool("t.true", True)
    writer.add_bool("t.false", False)
    writer.add_uint64("t.u64", 2**63 + 1)
    writer.add_int64("t.i64", -(2**62))
    writer.add_float64("t.f64", 0.1)
    writer.add_array("t.ints", [3, -1, 2])
    writer.add_array("t.floats", [0.5, -2.25])
    writer.add_array("t.strings", ["", "<s>", "▁the", "\n"])
    writer.add_tensor("token_embd.weight", rng.normal(size=(5, 32)).astype(np.float16))
    writer.add_tensor("norm.weight", np.arange(32, dtype=np.float32))
    experts = rng.normal(size=(2, 3, 64)).astype(np.float32)
    for qtype in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q5_1, gguf.GGMLQuantizationType.BF16):
        blocks = gguf.quants.quantize(experts, qtype)
        writer.add_tensor(f"experts.{qtype.name.lower()}", blocks, raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_gguf(path: pathlib.Path) -> dict:
    out = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        shape = [int(n) for n in reversed(tensor.shape)]
        out[tensor.name] = {"format": tensor.tensor_type.name, "shape": shape, "values": hex_of(values)}
    return out


def write_hf(folder: pathlib.Path, rng: np.random.Generator) -> dict:
    folder.mkdir(exist_ok=True)
    shards = {
        "model-00001-of-00002.safetensors": {
            "model.embed_tokens.weight": rng.normal(size=(6, 8)).astype(ml_dtypes.bfloat16),
            "model.position_ids": np.arange(4, dtype=np.int64),
        },
        "model-00002-of-00002.safetensors": {
            "model.norm.weight": rng.normal(size=8).astype(np.float32),
            "model.conv": rng.normal(size=(2, 3, 4)).astype(np.float16),
            "model.scalar": np.array(1.5, dtype=np.float32),
        },
    }
    weight_map = {}
    for name, tensors in shards.items():
        safetensors.numpy.save_file(tensors, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    config = {
        "architectures": ["OuterForConditionalGeneration"],
        "model_type": "outer",
        "tie_word_embeddings": False,
        "vision_config": {"hidden_size": 7},
        "text_config": {"model_type": "inner", "hidden_size": 8, "tie_word_embeddings": True},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")

    out = {}
    for name in shards:
        with safetensors.safe_open(folder / name, "numpy") as file:
            for key in file.keys():  # noqa: SIM118 (it has keys and no iterator)
                dtype = file.get_slice(key).get_dtype()
                if dtype in ("F32", "F16", "BF16"):
                    values = file.get_tensor(key)
                    shape = list(values.shape)
                    out[key] = {"format": dtype, "shape": shape, "values": hex_of(values.astype(np.float32))}
    return out


def main() -> None:
    rng = np.random.default_rng(20240607)
    formats = floats(rng)
    for name in SCALES:
        # The first ones share the generator with the roundings, which come after them.
        own = rng if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K") else None
        formats[name] = quantized(own or np.random.default_rng(gguf.GGMLQuantizationType[name].value), name)
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"formats": formats, "roundings": roundings(rng)}, indent=1)
    (OUT / "formats.json").write_text(text + "\n")

    write_gguf(OUT / "tiny.gguf", np.random.default_rng(1))
    write_gguf(OUT / "tiny_split.gguf", np.random.default_rng(1), split_max_tensors=2)
    expected = {"gguf": read_gguf(OUT / "tiny.gguf"), "hf": write_hf(OUT / "hf", rng)}
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/fixtures/weights/: blocks of every weight format with the values that gguf-py, numpy and ml_dtypes read.

Needs: pip install gguf ml_dtypes numpy
Usage: tools/make_weight_fixtures.py
"""

import json
import pathlib

import gguf
import ml_dtypes
import numpy as np

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
}


def hex_of(array: np.ndarray) -> str:
    return np.ascontiguousarray(array).tobytes().hex()


def quantized(rng: np.random.Generator, name: str) -> dict:
    """Random codes under ordinary, negative, tiny (subnormal) and large scales."""
    qtype = gguf.GGMLQuantizationType[name]
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    scales = np.array([0.0123, -1.5, 3e-7, 900.0], dtype=np.float16)
    blocks = rng.integers(0, 256, (len(scales), block_bytes), dtype=np.uint8)
    for row, scale in zip(blocks, scales, strict=True):
        for k, position in enumerate(SCALES[name]):
            value = np.float16(scale * (1 if k == 0 else -0.7))
            row[position : position + 2] = np.frombuffer(value.tobytes(), dtype=np.uint8)
    values = gguf.quants.dequantize(blocks, qtype).astype(np.float32)
    assert values.size == len(scales) * block_size and np.isfinite(values).all()
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


def main() -> None:
    rng = np.random.default_rng(20240607)
    formats = floats(rng) | {name: quantized(rng, name) for name in SCALES}
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"formats": formats, "roundings": roundings(rng)}, indent=1)
    (OUT / "formats.json").write_text(text + "\n")


if __name__ == "__main__":
    main()

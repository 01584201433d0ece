"""ggml's own conversions of weights, from the library that llama-cpp-python comes with."""

import ctypes
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

LIBRARY = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
LIBRARY.ggml_quantize_chunk.restype = ctypes.c_size_t
LIBRARY.ggml_quantize_chunk.argtypes = [ctypes.c_int, *2 * [ctypes.c_void_p], *3 * [ctypes.c_int64], ctypes.c_void_p]


def quantise(values: np.ndarray, qtype: gguf.GGMLQuantizationType) -> np.ndarray:
    """[rows, cols] of float32 to [rows, bytes]."""
    rows, cols = values.shape
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    out = np.zeros((rows, cols // block * size), dtype=np.uint8)
    even = np.ones(cols, dtype=np.float32)  # every input counts the same; some formats demand to be told
    written = LIBRARY.ggml_quantize_chunk(
        int(qtype), values.ctypes.data, out.ctypes.data, 0, rows, cols, even.ctypes.data
    )
    assert written == out.nbytes
    return out


def dequantise(data: np.ndarray, qtype: gguf.GGMLQuantizationType) -> np.ndarray:
    """[rows, bytes] to [rows, cols] of float32."""
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    data = np.ascontiguousarray(data)
    out = np.zeros((len(data), data.shape[1] // size * block), dtype=np.float32)
    function = getattr(LIBRARY, f"dequantize_row_{qtype.name.lower().replace('_k', '_K')}")
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function.restype = None
    function(data.ctypes.data, out.ctypes.data, out.size)
    return out

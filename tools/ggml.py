"""Conversions of weights by ggml itself, from the library that llama-cpp-python comes with."""

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

Type = gguf.GGMLQuantizationType
Tensor = gguf.gguf_reader.ReaderTensor


@functools.cache
def library() -> ctypes.CDLL:
    ggml = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, *2 * [ctypes.c_void_p], *3 * [ctypes.c_int64], ctypes.c_void_p]
    return ggml


def quantise(values: np.ndarray, qtype: Type) -> np.ndarray:
    """[rows, cols] of float32 to [rows, bytes]."""
    rows, cols = values.shape
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    out = np.zeros((rows, cols // block * size), dtype=np.uint8)
    even = np.ones(cols, dtype=np.float32)  # every input counts the same; some formats demand to be told
    written = library().ggml_quantize_chunk(
        int(qtype), values.ctypes.data, out.ctypes.data, 0, rows, cols, even.ctypes.data
    )
    assert written == out.nbytes
    return out


def dequantise(data: np.ndarray, qtype: Type) -> np.ndarray:
    """[..., bytes] to [..., cols] of float32."""
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    data = np.ascontiguousarray(data)
    out = np.zeros((*data.shape[:-1], data.shape[-1] // size * block), dtype=np.float32)
    function = getattr(library(), f"dequantize_row_{qtype.name.lower().replace('_k', '_K')}")
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function.restype = None
    function(data.ctypes.data, out.ctypes.data, out.size)
    return out


def rewrite(reader: gguf.GGUFReader, target: Path, type_of: Callable[[Tensor], Type]) -> None:
    """The same file with tensors of other types."""
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        data, qtype = tensor.data, type_of(tensor)
        if qtype != tensor.tensor_type:
            values = dequantise(data, tensor.tensor_type)
            data = values if qtype == Type.F32 else quantise(values, qtype)
        writer.add_tensor(tensor.name, data, raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

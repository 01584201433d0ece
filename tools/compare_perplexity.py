#!/usr/bin/env python3
"""Compares our perplexity with llama.cpp's on the same files: a model requantised to each format.

    python tools/compare_perplexity.py smollm2 IQ4_NL MXFP4 Q2_K ...    (gemma3; no format: all of them)

The interpreter needs gguf, numpy and llama-cpp-python, whose ggml quantises the weights. Some matrices whose rows are a
multiple of the format's block get it, the others stay as they are. The native tool is built by `ninja perplexity_tool`.
"""

import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import gguf
import llama_cpp
import numpy as np
from models import fetch

REPOSITORY = Path(__file__).resolve().parent.parent
FORMATS = [
    "F32",
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "NVFP4", "Q1_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"),
]
WINDOW = 250
LIMIT = 0.01


def ggml() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, integer, integer, integer, pointer]
    return library


def quantise(library: ctypes.CDLL, values: np.ndarray, qtype: gguf.GGMLQuantizationType) -> np.ndarray:
    rows, cols = values.shape
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    out = np.zeros((rows, cols // block * size), dtype=np.uint8)
    even = np.ones(cols, dtype=np.float32)  # every input counts the same; some formats demand to be told
    written = library.ggml_quantize_chunk(
        int(qtype), values.ctypes.data, out.ctypes.data, 0, rows, cols, even.ctypes.data
    )
    assert written == out.nbytes
    return out


def requantise(reader: gguf.GGUFReader, target: Path, name: str, most: int) -> int:
    """Returns how many matrices got the format: at most `most`, spread evenly over those that can have it."""
    library = ggml()
    qtype = gguf.GGMLQuantizationType[name]
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)
    fit = [
        tensor.name
        for tensor in reader.tensors
        if len(tensor.shape) == 2
        and (name == "F32" or not tensor.name.startswith("token_embd"))
        and tensor.shape[0] % gguf.GGML_QUANT_SIZES[qtype][0] == 0
    ]
    chosen = {fit[i * len(fit) // most] for i in range(most)} if len(fit) > most else set(fit)
    for tensor in reader.tensors:
        if tensor.name in chosen:
            values = np.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            writer.add_tensor(tensor.name, quantise(library, values, qtype), raw_dtype=qtype)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return len(chosen)


def theirs(path: Path, text: bytes, most: int, threads: int) -> tuple[list[int], float]:
    """The tokens, and the sum of -log p as of the native tool."""
    model = llama_cpp.Llama(
        str(path), n_ctx=WINDOW + 6, n_batch=WINDOW, logits_all=True, n_threads=threads, verbose=False
    )
    plain = model.tokenize(text, add_bos=False)[:most]
    # Models are made for texts that begin with their token for that.
    begin = [model.token_bos()] if model.metadata.get("tokenizer.ggml.add_bos_token", "true") == "true" else []
    step = WINDOW - len(begin)
    tokens = [token for at in range(0, len(plain), step) for token in begin + plain[at : at + step]]
    total = 0.0
    for begin in range(0, len(tokens), WINDOW):
        window = tokens[begin : begin + WINDOW]
        model.reset()
        model.eval(window)
        for row, token in zip(model.scores[: len(window) - 1], window[1:], strict=True):
            logits = row.astype(np.float64)
            top = logits.max()
            total += math.log(np.exp(logits - top).sum()) + top - logits[token]
    model.close()
    return tokens, total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["smollm2", "gemma3"])
    parser.add_argument("formats", nargs="*", default=FORMATS)
    parser.add_argument("--text", type=Path, help="a file; else the language reference that Python comes with")
    parser.add_argument("--matrices", type=int, default=8, help="that get the format; some take a minute each to make")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--tool", type=Path, default=REPOSITORY / "build" / "tests" / "native" / "perplexity_tool")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    prose = "\n".join(topics[name] for name in sorted(topics)).encode()[: 8 * arguments.tokens]
    reader = gguf.GGUFReader(fetch(arguments.model))  # once: a large vocabulary takes seconds
    text, failed = arguments.text.read_bytes() if arguments.text else prose, False
    for name in arguments.formats:
        if name not in FORMATS:
            parser.error(f"{name} is none of {', '.join(FORMATS)}")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            changed = requantise(reader, path, name, arguments.matrices)
            tokens, reference = theirs(path, text, arguments.tokens, arguments.threads)
            command = [arguments.tool, path, str(WINDOW), str(arguments.threads)]
            run = subprocess.run(command, input=json.dumps(tokens), capture_output=True, text=True, check=True)
            ours = json.loads(run.stdout)
        assert changed > 0, f"no matrix of {arguments.model} has rows for {name}"
        mine, other = (math.exp(nll / ours["tokens"]) for nll in (ours["nll"], reference))
        ratio = mine / other - 1
        failed |= abs(ratio) > LIMIT
        line = f"{name:8} {changed:4} matrices  ours {mine:10.4f}  llama.cpp {other:10.4f}  {100 * ratio:+.2f} %"
        print(line, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

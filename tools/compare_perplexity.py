#!/usr/bin/env python3
"""Compares our perplexity with llama.cpp's on the same files: a model requantised to each format. Prints a table.

    python tools/compare_perplexity.py smollm2 IQ4_NL MXFP4 Q2_K ...    (gemma3; no format: all that fit)

The interpreter needs gguf, numpy and llama-cpp-python, whose ggml quantises the weights. Every matrix whose rows are
whole blocks of the format gets it, the embedding too unless blocks have 256 inputs; the others become Q8_0. A
difference above 1 % is followed by our perplexity with keys and values in float32, and with all of the same weights in
float32, which shows whose rounding it is.
The native tool is built by `ninja perplexity_tool`. Fails where the difference is above 1 %.
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from ggml import Tensor, Type, rewrite
from make_llama_fixtures import made_by
from models import fetch

REPOSITORY = Path(__file__).resolve().parent.parent
TEXT = REPOSITORY / "tests" / "fixtures" / "perplexity" / "text.txt"
FORMATS = [
    "F32",
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "NVFP4", "Q1_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"),
]
WINDOW, TOKENS = 250, 4000
LIMIT = 0.01


def choose(reader: gguf.GGUFReader, name: str, most: int) -> tuple[Callable[[Tensor], Type], int]:
    """What each tensor becomes, and how many get the format: at most `most`, spread evenly over those that can."""
    qtype = Type[name]
    block = gguf.GGML_QUANT_SIZES[qtype][0]
    fit = [
        tensor.name
        for tensor in reader.tensors
        if len(tensor.shape) == 2
        and tensor.shape[0] % block == 0
        and (block < 256 or not tensor.name.startswith("token_embd"))
    ]
    chosen = {fit[i * len(fit) // most] for i in range(most)} if len(fit) > most else set(fit)

    def type_of(tensor: Tensor) -> Type:
        if len(tensor.shape) < 2:
            return tensor.tensor_type
        return qtype if tensor.name in chosen else Type.Q8_0

    return type_of, len(chosen)


def theirs(path: Path, text: bytes, most: int, threads: int) -> tuple[list[int], float]:
    """The tokens, and the sum of -log p as of the native tool."""
    model = llama_cpp.Llama(
        str(path),
        n_ctx=WINDOW + 6,
        n_batch=WINDOW,
        logits_all=True,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )
    plain = model.tokenize(text, add_bos=False)[:most]
    assert len(plain) == most, f"the text has {len(plain)} tokens"
    # Models are made for texts that begin with their token for that.
    begin = [model.token_bos()] if model.metadata.get("tokenizer.ggml.add_bos_token", "true") == "true" else []
    step = WINDOW - len(begin)
    tokens = [token for at in range(0, len(plain), step) for token in begin + plain[at : at + step]]
    total = 0.0
    for at in range(0, len(tokens), WINDOW):
        window = tokens[at : at + WINDOW]
        model.reset()
        model.eval(window)
        for row, token in zip(model.scores[: len(window) - 1], window[1:], strict=True):
            top = row.max()
            total += math.log(np.exp(row - top).sum(dtype=np.float64)) + float(top) - float(row[token])
    model.close()
    return tokens, total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["smollm2", "gemma3"])
    parser.add_argument("formats", nargs="*", default=FORMATS)
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--matrices", type=int, default=10**6, help="at most so many get the format, the rest Q8_0")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--tool", type=Path, default=REPOSITORY / "build" / "tests" / "native" / "perplexity_tool")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    path = fetch(arguments.model)
    reader = gguf.GGUFReader(path)  # once: a large vocabulary takes seconds
    text, failed = arguments.text.read_bytes(), False

    def ours(file: Path, tokens: list[int], *cache: str) -> dict:
        command = [arguments.tool, file, str(WINDOW), str(arguments.threads), *cache]
        run = subprocess.run(command, input=json.dumps(tokens), capture_output=True, text=True, check=True)
        return json.loads(run.stdout)

    versions = made_by(llama_cpp)
    print(
        f"{path.name}, {arguments.tokens} tokens in windows of {WINDOW} of the text of sha256"
        f" {hashlib.sha256(text).hexdigest()[:16]}, llama.cpp {versions['llama_cpp']}"
        f" (llama-cpp-python {versions['llama_cpp_python']}):\n\n"
        "| format | matrices | ours | llama.cpp | difference | cache in float32 | all in float32 |\n"
        "|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name in arguments.formats:
        if name not in FORMATS:
            parser.error(f"{name} is none of {', '.join(FORMATS)}")
        type_of, count = choose(reader, name, arguments.matrices)
        if count == 0:
            parser.error(f"no matrix of {arguments.model} has rows for {name}")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.gguf"
            rewrite(reader, file, type_of)
            tokens, reference = theirs(file, text, arguments.tokens, arguments.threads)
            mine = ours(file, tokens)
            difference = math.exp((mine["nll"] - reference) / mine["tokens"]) - 1
            cache = exact = None
            if abs(difference) > LIMIT:
                failed = True
                cache = ours(file, tokens, "f32")["nll"]
                plain = Path(folder) / "plain.gguf"
                rewrite(gguf.GGUFReader(file), plain, lambda t: Type.F32 if len(t.shape) == 2 else t.tensor_type)
                exact = ours(plain, tokens, "f32")["nll"]
        sums = (mine["nll"], reference, cache, exact)
        cells = ["" if n is None else f"{math.exp(n / mine['tokens']):.3f}" for n in sums]
        cells.insert(2, f"{100 * difference:+.2f} %")
        print(f"| {name} | {count} | {' | '.join(cells)} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares llama.cpp's logits of the tiny hybrid GGUF files with those that transformers computed from their originals.

    python tools/check_hybrid_gguf.py

Needs llama-cpp-python and numpy. The files are written by make_transformers_fixtures.py; that llama.cpp computes the
same from them shows that they are laid out as published ones are.
"""

import json
import sys

import llama_cpp
import numpy as np
from make_llama_fixtures import REPOSITORY, quiet

FILES = {"qwen3_5-moe": "qwen35moe.gguf", "qwen3-next": "qwen3next.gguf"}


def difference(folder: str, file: str) -> float:
    """The worst one, in standard deviations of the logits."""
    path = REPOSITORY / "tests" / "fixtures" / "transformers" / folder
    expected = json.loads((path / "expected.json").read_text())
    wanted = np.fromfile(path / expected["logits"]["file"], dtype="<f4").reshape(expected["logits"]["shape"])
    with quiet():
        model = llama_cpp.Llama(str(path / file), n_ctx=64, n_threads=2, logits_all=True, verbose=False)
        model.eval(expected["token_ids"])
    return float(np.abs(np.array(model.scores[: len(wanted)]) - wanted).max() / wanted.std())


def main() -> int:
    worst = {file: difference(folder, file) for folder, file in FILES.items()}
    for file, value in worst.items():
        print(f"{file}: {value:.1e} standard deviations at worst")
    return 0 if max(worst.values()) < 5e-3 else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes native/src/base/iq_grids.cc: the grids of the IQ formats of GGUF, from the gguf package.

A grid is a fact of the format, found by its designers with a search, so that no formula gives it. Needs: gguf, numpy.
"""

import pathlib

import gguf.quants
import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "native" / "src" / "base" / "iq_grids.cc"

# Name in our source, format of the gguf package, bits of a level's number.
GRIDS = [
    ("kIq1Grid", "IQ1_S", 2),
    ("kIq2XxsGrid", "IQ2_XXS", 2),
    ("kIq2XsGrid", "IQ2_XS", 2),
    ("kIq2SGrid", "IQ2_S", 2),
    ("kIq3XxsGrid", "IQ3_XXS", 3),
    ("kIq3SGrid", "IQ3_S", 3),
]
HEAD = """\
// Made by tools/make_iq_grids.py.
// clang-format off
#include "base/iq_grids.h"

namespace vllm {
"""


def words(name: str, bits: int) -> np.ndarray:
    quant = getattr(gguf.quants, name)
    quant.init_grid()
    grid = quant.grid.reshape(quant.grid_shape)
    levels = np.array(quant.grid_map, dtype=np.float32)
    codes = np.abs(grid[..., None] - levels).argmin(axis=-1)
    assert (levels[codes] == grid).all()
    return (codes << (bits * np.arange(codes.shape[1]))).sum(axis=1)


def main() -> None:
    lines = [HEAD]
    for symbol, name, bits in GRIDS:
        values = words(name, bits)
        lines.append(f"const uint16_t {symbol}[{len(values)}] = {{\n")
        for i in range(0, len(values), 16):
            lines.append("    " + ",".join(f"{value:#x}" for value in values[i : i + 16]) + ",\n")
        lines.append("};\n\n")
    lines.append("}  // namespace vllm\n")
    OUT.write_text("".join(lines))


if __name__ == "__main__":
    main()

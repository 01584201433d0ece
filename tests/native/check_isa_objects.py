#!/usr/bin/env python3
"""Checks that objects compiled for an instruction set share no code with the rest.

Of an inline function that several objects bring, the linker keeps one for all of them. If that is one with, say,
AVX-512 instructions, the library dies on a machine without them. So these objects must define no such (weak) symbol.

usage: [NM=nm of the objects' architecture] check_isa_objects.py object...
"""

import os
import re
import subprocess
import sys


def weak_symbols(path: str) -> list[str]:
    listing = subprocess.run(
        [os.environ.get("NM", "nm"), "-C", "--defined-only", path],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    return re.findall(r"^[0-9a-f]* [WVuwv] (.*)$", listing, re.MULTILINE)


def main() -> int:
    objects = [path for path in sys.argv[1:] if re.search(r"_(avx|amx|neon)\w*\.cc\.o(bj)?$", path)]
    if not objects:
        print("no object for an instruction set was named", file=sys.stderr)
        return 1
    shared = [(path, name) for path in objects for name in weak_symbols(path)]
    for path, name in shared:
        print(f"{path} shares {name}", file=sys.stderr)
    print(f"{len(objects)} objects, {len(shared)} shared symbols")
    return 1 if shared else 0


if __name__ == "__main__":
    sys.exit(main())

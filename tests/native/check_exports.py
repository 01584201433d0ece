#!/usr/bin/env python3
"""Checks what a built libvllm shows to the outside.

It defines the functions of abi_layout.json and of vllm_ext.h and nothing else, needs no library but the C library
and the loader, of glibc nothing newer than NEWEST_GLIBC, and opens with every symbol resolved.

usage: check_exports.py libvllm.so
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEWEST_GLIBC = (2, 35)
ALLOWED_LIBRARIES = re.compile(r"libc\.so\.6|libm\.so\.6|ld-linux[\w.-]*\.so\.\d+")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def declared_functions() -> tuple[set[str], int]:
    """Names of all functions to export, and the ABI number."""
    layout = json.loads((ROOT / "tests/fixtures/abi_layout.json").read_text())
    extension = (ROOT / "native/include/vllm_ext.h").read_text()
    names = {function["name"] for function in layout["functions"]}
    names |= set(re.findall(r"VLLM_API\s+[\w\s*]*?\b(vllm_ext_\w+)\(", extension))
    return names, layout["abi_version"]


def mapped_libraries() -> set[str]:
    """Paths of the shared objects that this process has mapped."""
    maps = pathlib.Path("/proc/self/maps")
    return set(re.findall(r"(/\S+\.so[\w.]*)$", maps.read_text() if maps.exists() else "", flags=re.MULTILINE))


def check(library: str) -> list[str]:
    """The faults found."""
    faults = []
    wanted, abi_version = declared_functions()
    exported = {line.split()[0].split("@")[0] for line in run("nm", "-DP", "--defined-only", library).splitlines()}
    faults += [f"missing function {name}" for name in sorted(wanted - exported)]
    faults += [f"undeclared symbol {name}" for name in sorted(exported - wanted)]

    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", library))
    if not needed:
        faults.append("readelf names no needed library at all")
    faults += [f"needs {name}" for name in needed if not ALLOWED_LIBRARIES.fullmatch(name)]

    versions = re.findall(r"\b(\S+)@GLIBC_(\d+)\.(\d+)", run("nm", "-DP", "--undefined-only", library))
    faults += [
        f"needs {symbol} of glibc {major}.{minor}, newer than {'.'.join(map(str, NEWEST_GLIBC))}"
        for symbol, major, minor in versions
        if (int(major), int(minor)) > NEWEST_GLIBC
    ]
    if not versions and "libc.so.6" in needed:
        faults.append("nm shows no versions of glibc's symbols")

    before = mapped_libraries()
    opened = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    came = {pathlib.Path(path).name for path in mapped_libraries() - before - {library}}
    faults += [f"brings {name} into the process" for name in sorted(came) if not ALLOWED_LIBRARIES.fullmatch(name)]
    if opened.vllm_abi_version() != abi_version:
        faults.append(f"vllm_abi_version() is {opened.vllm_abi_version()}, needed is {abi_version}")
    opened.vllm_version.restype = ctypes.c_char_p
    if not re.fullmatch(rb"\d+\.\d+\.\d+(\+\w+)?", opened.vllm_version()):
        faults.append(f"vllm_version() is {opened.vllm_version()!r}")
    print(f"{library}: {len(exported & wanted)} of {len(wanted)} functions, needs {' '.join(needed)}")
    return faults


def main() -> int:
    faults = check(str(pathlib.Path(sys.argv[1]).resolve()))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

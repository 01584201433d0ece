#!/usr/bin/env python3
"""Turns abi_layout.json into macro calls, one a fact, which C and C++ tests expand as they need.

usage: abi_layout.py abi_layout.json abi_layout.inc
"""

import json
import pathlib
import sys


def parameter_list(params: list[dict]) -> str:
    return ", ".join(p["type"] for p in params) or "void"


def main() -> None:
    source, target = map(pathlib.Path, sys.argv[1:])
    layout = json.loads(source.read_text())
    lines = [f"ABI_VERSION({layout['abi_version']})"]
    for handle in layout["opaque_handles"]:
        lines.append(f"ABI_HANDLE({handle})")
    for name, callback in layout["callbacks"].items():
        lines.append(f"ABI_CALLBACK({name}, {callback['returns']}, ({parameter_list(callback['params'])}))")
    for name, enum in layout["enums"].items():
        for constant, value in enum["values"].items():
            lines.append(f"ABI_ENUM({name}, {constant}, {value})")
    for name, struct in layout["structs"].items():
        fields = struct["fields"]
        members = ", ".join(field["name"] for field in fields)
        lines.append(f"ABI_STRUCT({name}, {struct['size']}, {struct['align']}, {members})")
        for field in fields:
            lines.append(f"ABI_FIELD({name}, {field['name']}, {field['type']}, {field['offset']}, {field['size']})")
    for function in layout["functions"]:
        lines.append(f"ABI_FUNCTION({function['name']}, {function['returns']}, ({parameter_list(function['params'])}))")
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks the structure of the shaders that were translated to Metal, for no compiler of Metal runs here.

Each shaders/NAME.comp but *_dot and *_matrix, whose instructions spirv-cross does not translate, has one NAME.metal
with one kernel NAME. Its buffers are the parameters, at 0, and nothing else; they hold what the struct of
parameters.h holds, in its order. Its function constants are the specialization constants that the GLSL declares, and
its threadgroup memory is within what every GPU has.

usage: check_metal_shaders.py FOLDER
"""

import pathlib
import re
import sys

SHADERS = pathlib.Path(__file__).resolve().parents[2] / "native/src/device/vulkan/shaders"
MAX_SHARED = 16 * 1024
SIZES = {
    "char": 1,
    "bool": 1,
    "short": 2,
    "ushort": 2,
    "int": 4,
    "uint": 4,
    "half": 2,
    "float": 4,
    "float2": 8,
    "float4": 16,
}
BUILTINS = {
    "threadgroups_per_grid",
    "threadgroup_position_in_grid",
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "thread_index_in_threadgroup",
}


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def glsl(name: str, seen: set[str]) -> str:
    """A shader's source with what it includes."""
    if name in seen:
        return ""
    seen.add(name)
    text = without_comments((SHADERS / name).read_text())
    return re.sub(r'#include "(.*?)"', lambda match: glsl(match[1], seen), text)


def wanted_members(struct: str) -> list[str]:
    """Members of a struct of parameters.h; an address is a pointer."""
    text = without_comments((SHADERS / "parameters.h").read_text())
    body = re.search(rf"struct {struct} \{{(.*?)\}};", text, re.S)
    if body is None:
        return []
    out = []
    for kind, names in re.findall(r"(\w+) ([^;]+);", body[1]):
        kind = f"device {kind}*" if kind in ("Floats", "Words", "Ints", "Quads") else kind
        out += [f"{kind} {name.strip()}" for name in names.split(",")]
    return out


def members(metal: str, struct: str) -> list[str]:
    """Members of a struct of a translated shader, structs in it taken apart."""
    body = re.search(rf"struct {struct}\s*\{{(.*?)\n\}};", metal, re.S)
    if body is None:
        return []
    out = []
    for kind, name in re.findall(r"((?:device )?\w+\*?) (\w+?)0?;", body[1]):  # words that Metal reserves get a 0
        out += members(metal, kind) if f"struct {kind}\n" in metal else [f"{kind} {name}"]
    return out


def check(name: str, metal: str) -> list[str]:
    """The faults found."""
    faults = []
    source = glsl(f"{name}.comp", set())
    kernels = re.findall(r"^kernel void (\w+)\((.*)\)$", metal, re.M)
    if [kernel for kernel, _ in kernels] != [name]:
        return [f"its kernels are {[kernel for kernel, _ in kernels]}"]
    buffers = []
    for argument in re.split(r",(?![^\[]*\]\])", kernels[0][1]):
        match = re.fullmatch(r"(.*?) ?\[\[(.*)\]\]", argument.strip())
        if match is None:
            faults.append(f"the argument {argument.strip()} is bound to nothing")
        elif match[2].startswith("buffer("):
            buffers.append((match[2], match[1]))
        elif match[2] not in BUILTINS:
            faults.append(f"the argument {argument.strip()} is none that a compute kernel has here")
    if [binding for binding, _ in buffers] != ["buffer(0)"]:
        faults.append(f"its buffers are {buffers}")
    else:
        struct = re.match(r"constant (\w+)&", buffers[0][1])
        parameters = re.search(r"^PARAMETERS\((\w+)\)", source, re.M)
        want = wanted_members(parameters[1]) if parameters else []
        got = members(metal, struct[1]) if struct else []
        if not want or want != got:
            faults.append(f"its parameters are {got}, not {want}")
    want_constants = sorted({0} | {int(n) for n in re.findall(r"constant_id = (\d+)", source)})
    got_constants = sorted({int(n) for n in re.findall(r"\[\[function_constant\((\d+)\)\]\]", metal)})
    if not set(got_constants) <= set(want_constants) or 0 not in got_constants:
        faults.append(f"its function constants are {got_constants}, not {want_constants}")
    shared = 0
    # Older versions of spirv-cross write plain arrays, newer ones a template's.
    arrays = re.findall(r"^ +threadgroup (\w+) \w+\[([^\]]+)\];", metal, re.M)
    arrays += re.findall(r"^ +threadgroup spvUnsafeArray<(\w+), ([^>]+)> \w+;", metal, re.M)
    for kind, count in arrays:
        if kind not in SIZES or not count.isdigit():
            faults.append(f"threadgroup memory of {count} {kind}")
        else:
            shared += SIZES[kind] * int(count)
    if shared > MAX_SHARED or ("shared " in source) != (shared > 0):
        faults.append(f"{shared} bytes of threadgroup memory")
    return faults


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    names = sorted(path.stem for path in SHADERS.glob("*.comp") if not path.stem.endswith(("_dot", "_matrix")))
    faults = []
    for name in names:
        path = folder / f"{name}.metal"
        found = check(name, path.read_text()) if path.exists() else ["there is no translation"]
        faults += [f"{name}: {fault}" for fault in found]
    print("\n".join(faults) or f"{len(names)} shaders are as they should be")
    return 1 if faults or not names else 0


if __name__ == "__main__":
    sys.exit(main())

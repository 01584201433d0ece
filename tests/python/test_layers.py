"""The layers of native/src: a file includes only its own layer and those below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]*)"', re.MULTILINE)
PUBLIC_HEADERS = {"vllm.h", "vllm_ext.h"}


def layers() -> list[str]:
    """Lowest first, as the build has them."""
    listed = re.search(r"set\(VLLM_LAYERS ([^)]*)\)", (ROOT / "CMakeLists.txt").read_text())
    assert listed, "CMakeLists.txt has no VLLM_LAYERS"
    return listed.group(1).split()


def faults(source: Path, order: list[str]) -> list[str]:
    """What is wrong with the includes of the files below `source`, the folder of the layers."""
    found = []
    for file in sorted(source.rglob("*")):
        if file.suffix not in {".cc", ".h"}:
            continue
        own, *_ = file.relative_to(source).parts
        if own not in order:
            found.append(f"{file.relative_to(source)} is in no layer")
            continue
        for name in INCLUDE.findall(file.read_text()):
            other, *rest = name.split("/")
            if own == "abi" and name in PUBLIC_HEADERS:
                continue
            if not rest or other not in order or ".." in rest:
                found.append(f"{file.relative_to(source)} includes {name}, which does not start with a layer")
            elif order.index(other) > order.index(own):
                found.append(f"{file.relative_to(source)} includes {name} of a higher layer")
    return found


def test_includes_point_down() -> None:
    assert faults(ROOT / "native/src", layers()) == []


def test_there_are_layers_and_includes() -> None:
    order = layers()
    assert order[0] == "base"
    assert order[-1] == "abi"
    texts = [file.read_text() for file in (ROOT / "native/src").rglob("*.h")]
    assert sum(len(INCLUDE.findall(text)) for text in texts) > 10


@pytest.mark.parametrize(
    ("path", "include", "fault"),
    [
        ("device/cpu/pool.cc", "device/device.h", None),
        ("device/cpu/pool.cc", "base/error.h", None),
        ("abi/guard.h", "vllm.h", None),
        ("abi/guard.h", "engine/engine.h", None),
        ("device/device.h", "model/model.h", "device/device.h includes model/model.h of a higher layer"),
        ("device/cpu/pool.cc", "../device.h", "which does not start with a layer"),
        ("device/cpu/pool.cc", "device/../engine/engine.h", "which does not start with a layer"),
        ("device/cpu/pool.cc", "pool.h", "which does not start with a layer"),
        ("engine/engine.cc", "vllm.h", "which does not start with a layer"),
        ("helpers/text.h", "base/error.h", "helpers/text.h is in no layer"),
    ],
)
def test_faults_are_found(tmp_path: Path, path: str, include: str, fault: str | None) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(f'#pragma once\n#include <vector>\n#include "{include}"\n')
    found = faults(tmp_path, ["base", "device", "model", "engine", "abi"])
    if fault is None:
        assert found == []
    else:
        assert len(found) == 1
        assert fault in found[0]

#!/usr/bin/env python3
"""Runs plain_load in a root folder that holds the loader, libc, libm, libvllm and a model, and nothing else.

usage: check_plain_load.py plain_load libvllm.so
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parents[1] / "fixtures/transformers/llama/llama.gguf"


def libraries(program: str) -> list[str]:
    """Paths of what the loader maps for a program."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def main() -> int:
    program, library = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="plain-load-") as folder:
        root = pathlib.Path(folder)
        # ldd names the loader by the path that programs have it under.
        for path in {*libraries(program), *libraries(library)}:
            if not re.match(r"(libc|libm)\.so\.6$|ld-linux[\w.-]*\.so\.\d+$", pathlib.Path(path).name):
                print(f"{path} is needed, which is neither libc nor libm nor the loader", file=sys.stderr)
                return 1
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        for path in (program, library, MODEL):
            shutil.copy(path, root)
        inside = ["chroot", folder] if os.geteuid() == 0 else ["unshare", "--map-root-user", f"--root={folder}"]
        names = [f"/{pathlib.Path(path).name}" for path in (program, library, MODEL)]
        return subprocess.run([*inside, *names], check=False, timeout=60).returncode


if __name__ == "__main__":
    sys.exit(main())

"""The self-test tells a library that works from one that does not. The fake library answers with the prompt itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def selftest(library: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "VLLM_CPP_LIBRARY": str(library), **environment}
    command = [sys.executable, "-m", "vllm_backend", "selftest", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def verdict(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of stderr of a self-test that has to fail."""
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("selftest: FAILED: ")
    return last


def test_a_wrong_answer_fails(fake_library: Path) -> None:
    assert "'abcdefgh', needed is 'ijklmnopqrstuvwxyz'" in verdict(selftest(fake_library))


def test_LOAD_01_another_abi_version_fails(fake_library: Path) -> None:
    assert "has ABI version 10, this backend needs 21" in verdict(selftest(fake_library, FAKE_VLLM_ABI="10"))


def test_no_library_fails(tmp_path: Path) -> None:
    assert f"the library {tmp_path}/none.so does not exist" in verdict(selftest(tmp_path / "none.so"))


def test_nowhere_to_write_fails(fake_library: Path, tmp_path: Path) -> None:
    """A size limit of zero bytes for files closes every folder for temporary ones."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        "from vllm_backend import selftest; sys.exit(selftest.main([]))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "VLLM_CPP_LIBRARY": str(fake_library)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert "No usable temporary directory" in verdict(done)


def test_arguments_are_refused(fake_library: Path) -> None:
    done = selftest(fake_library, "--fast")
    assert done.returncode == 2
    assert "usage: selftest" in done.stderr

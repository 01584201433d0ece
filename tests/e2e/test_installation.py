"""An installation: its self-test on every instruction set of this machine, and installing again."""

import os
import re
import subprocess

import pytest
from localai_client import REPOSITORY

VERDICT = re.compile(
    r"selftest: OK: libvllm \d+\.\d+\.\d+\S*, ABI 21, cpu \((\w+), \d+ threads?\)"
    r", \d+\.\d of \d+\.\d GB memory free, 18 tokens right, (\d+\.\d) s\n"
)


@pytest.mark.parametrize("isa", ["", "baseline", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"])
def test_one_line_tells_the_verdict(isa):
    command = [REPOSITORY / "run.sh", "selftest"]
    done = subprocess.run(command, env=os.environ | {"VLLM_CPU_ISA": isa}, capture_output=True, text=True, timeout=60)
    if isa and "is not available" in done.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert done.returncode == 0, done.stderr
    match = VERDICT.fullmatch(done.stdout)
    assert match, done.stdout
    assert done.stderr == ""
    assert not isa or match[1] == isa
    assert float(match[2]) < 5


def test_installing_again_needs_no_network_and_changes_nothing(tmp_path):
    """As CI installed it: without a mirror, an index or apt-get, everything is found to be there."""
    if not (REPOSITORY / "venv" / ".stubs").exists() or (REPOSITORY / "venv").is_symlink():
        pytest.skip("this folder was not made ready by install.sh")
    asked = tmp_path / "asked"
    (tmp_path / "apt-get").write_text(f'#!/bin/sh\necho "$*" >>"{asked}"\nexit 1\n')
    (tmp_path / "apt-get").chmod(0o755)
    nowhere = "http://127.0.0.1:9"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
    environment |= {"http_proxy": nowhere, "https_proxy": nowhere}
    library = REPOSITORY / "lib" / "libvllm.so"
    before = library.stat()
    done = subprocess.run(
        [REPOSITORY / "install.sh"], env=os.environ | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for words in ("Debian packages: all there", "Python environment: all there", "gRPC stubs: up to date", "Ready:"):
        assert f"==> {words}" in done.stdout
    assert "selftest: OK: " in done.stdout
    assert "Downloading" not in done.stdout and not asked.exists()
    assert (library.stat().st_ino, library.stat().st_mtime) == (before.st_ino, before.st_mtime)

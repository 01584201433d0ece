"""The self-test of an installation, on every instruction set of this machine."""

import os
import re
import subprocess

import pytest
from localai_client import REPOSITORY

VERDICT = re.compile(
    r"selftest: OK: libvllm \d+\.\d+\.\d+\S*, ABI 21, cpu \((\w+), \d+ threads?\)"
    r", \d+\.\d of \d+\.\d GiB memory free, 18 tokens right, (\d+\.\d) s\n"
)


@pytest.mark.parametrize("isa", ["", "baseline", "avx2", "avx512", "avx512bf16"])
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

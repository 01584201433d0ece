"""run.sh and install.sh, in copies of their folder with stand-ins for what they call, and the benchmarks' imports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(command: list[str | Path], cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    # Not through a shell; VLLM_CPP_LIBRARY of the test run must not reach the script.
    clean = {key: value for key, value in os.environ.items() if key not in {"VLLM_CPP_LIBRARY", "PYTHONPATH"}}
    return subprocess.run(command, cwd=cwd, env={**clean, **(env or {})}, capture_output=True, text=True, check=False)


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """A folder as an installation, whose backend prints what it was started with."""
    folder = tmp_path / "a folder"
    package = folder / "python/vllm_backend"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import os, sys\nprint(os.environ['VLLM_CPP_LIBRARY'], os.getpid(), sys.executable, *sys.argv[1:], sep='\\n')\n"
    )
    shutil.copy2(ROOT / "run.sh", folder)
    return folder


def test_run_passes_arguments_and_names_the_library(backend: Path, tmp_path: Path) -> None:
    done = run([backend / "run.sh", "--addr", "127.0.0.1:1 2"], cwd=tmp_path)
    library, _, _, *arguments = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert Path(library) == backend / "lib" / ("libvllm.dylib" if sys.platform == "darwin" else "libvllm.so")
    assert arguments == ["--addr", "127.0.0.1:1 2"]


def test_run_takes_arguments_as_utf_8_in_any_locale(backend: Path, tmp_path: Path) -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run([backend / "run.sh", "m\u00f6del"], cwd=tmp_path, env=locale)
    assert done.stdout.splitlines()[-1] == "m\u00f6del", done.stderr


def test_run_keeps_a_library_that_is_set(backend: Path, tmp_path: Path) -> None:
    done = run([backend / "run.sh"], cwd=tmp_path, env={"VLLM_CPP_LIBRARY": "/elsewhere/libvllm.so"})
    assert done.stdout.splitlines()[0] == "/elsewhere/libvllm.so"


def test_run_works_as_a_link_and_in_a_moved_folder(backend: Path, tmp_path: Path) -> None:
    moved = backend.rename(tmp_path / "moved")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin/backend"
    link.symlink_to("../moved/run.sh")
    done = run(["./backend"], cwd=tmp_path / "bin")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[0]).parent == moved / "lib"


def test_run_prefers_the_environment_of_the_folder(backend: Path, tmp_path: Path) -> None:
    python = backend / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "ours: $*"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = run([backend / "run.sh", "--help"], cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "ours: -m vllm_backend --help"


def test_run_refuses_a_folder_that_python_cannot_name(backend: Path, tmp_path: Path) -> None:
    folder = backend.rename(tmp_path / "a:b")
    done = run([folder / "run.sh"], cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"run.sh: the folder {folder} has a colon in its name")


def test_run_becomes_the_backend(backend: Path, tmp_path: Path) -> None:
    """A signal to the process that was started reaches the backend itself."""
    with subprocess.Popen([backend / "run.sh"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert int(started.stdout.read().splitlines()[1]) == started.pid


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder to install in, and bin/ with all that is on PATH: tools, and stand-ins that say what they were asked.

    Ninja, doctest and npm are missing.
    """
    for name in ("install.sh", "packages.txt", "packages-dev.txt", "requirements.txt", "requirements-build.txt"):
        shutil.copy2(ROOT / name, tmp_path)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "cat", "cksum", "df", "dirname", "env", "readlink", "sed", "true"):
        (commands / name).symlink_to(str(shutil.which(name)))
    (commands / "python3").symlink_to(sys.executable)
    for name in ("g++", "cmake", "uv"):
        stand_in(commands / name, "exit 3")
    stand_in(commands / "dpkg-query", "case $* in *doctest*) exit 1 ;; *) echo installed ;; esac")
    stand_in(commands / "apt-get", f'echo "apt-get $*" >>{tmp_path}/asked; [ "$1" = update ]')
    return tmp_path


def stand_in(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def install(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run([machine / "install.sh", *arguments], cwd=Path("/"), env={"PATH": str(machine / "bin")})


def test_install_names_the_missing_packages_when_it_may_not_install(machine: Path) -> None:
    stand_in(machine / "bin/id", "echo 1000")
    stand_in(machine / "bin/sudo", "exit 1")
    done = install(machine)
    assert done.returncode == 1
    assert "sudo apt-get install --no-install-recommends ninja-build doctest-dev\n" in done.stderr
    assert not (machine / "asked").exists()
    assert not (machine / "venv").exists()


def test_install_names_what_makes_environments_where_python_alone_is_there(machine: Path) -> None:
    (machine / "bin/uv").unlink()
    (machine / "bin/python3").unlink()
    stand_in(machine / "bin/python3", f'case $* in *ensurepip*) exit 1 ;; *) exec "{sys.executable}" "$@" ;; esac')
    stand_in(machine / "bin/id", "echo 1000")
    stand_in(machine / "bin/sudo", "exit 1")
    done = install(machine)
    assert done.returncode == 1
    assert "apt-get install --no-install-recommends python3-venv ninja-build doctest-dev\n" in done.stderr
    assert "this failed" not in done.stderr


@pytest.mark.parametrize("root", [True, False])
def test_install_installs_the_missing_packages(machine: Path, root: bool) -> None:
    stand_in(machine / "bin/id", f"echo {0 if root else 1000}")
    stand_in(machine / "bin/sudo", '[ "$1" = -n ] && shift && exec "$@"')
    if root:
        (machine / "bin/sudo").unlink()
    done = install(machine)
    assert done.returncode != 0  # this apt-get refuses to install
    assert (machine / "asked").read_text().splitlines() == [
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends ninja-build doctest-dev",
    ]
    assert "==> Installing ninja-build doctest-dev" in done.stdout
    assert re.fullmatch(
        r"install\.sh: this failed: Installing ninja-build doctest-dev; the lines above say why "
        r"\([\d.]+[KMGT]? are free on this disk\), and another run goes on from here\n",
        done.stderr,
    )


def test_install_for_tests_names_more_packages(machine: Path) -> None:
    stand_in(machine / "bin/id", "echo 1000")
    stand_in(machine / "bin/sudo", "exit 1")
    done = install(machine, "--dev")
    assert done.returncode == 1
    assert "sudo apt-get install --no-install-recommends ninja-build doctest-dev npm\n" in done.stderr


def test_install_refuses_unknown_arguments(machine: Path) -> None:
    done = install(machine, "--fast")
    assert done.returncode == 2
    assert "usage: install.sh" in done.stderr
    assert not (machine / "asked").exists()


@pytest.mark.parametrize("script", ["run.py", "text.py"])
def test_benchmarks_find_what_they_import(script: str, tmp_path: Path) -> None:
    done = run([sys.executable, ROOT / "bench" / script, "--help"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--runs" in done.stdout

"""A fake library and real server processes on it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tools"), str(Path(__file__).resolve().parent)]

from backend_process import Backend  # noqa: E402

# A shell that starts this in the background has its children ignore Ctrl-C, and they would hand that on.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("library") / "libvllm.so"
    source = Path(__file__).with_name("fake_vllm.c")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run(
        ["cc", *flags, f"-I{ROOT / 'native' / 'include'}", str(source), "-o", str(library)], check=True, timeout=60
    )
    return library


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models directory; what makes a model special for the fake library is its name."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("good", "slow", "broken", "org/draft"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
    (folder / "empty").mkdir()
    (folder / "files").mkdir()
    (folder / "files" / "a.gguf").write_bytes(b"GGUF")
    (folder / "one.GGUF").write_bytes(b"GGUF")
    (folder / "notes.txt").write_text("no model")
    (folder / "template.json").write_text("{}")
    return folder


Start = Callable[..., Backend]


@pytest.fixture
def start(fake_library: Path, tmp_path: Path, models: Path) -> Iterator[Start]:
    """Starts server processes of the test's own; `start(load=True)` has the good model loaded."""
    running: list[Backend] = []

    def make(load: bool = False, metadata: dict[str, str] | None = None, **arguments: object) -> Backend:
        folder = tmp_path / f"backend{len(running)}"
        folder.mkdir()
        backend = Backend(fake_library, models, folder, **arguments)  # type: ignore[arg-type]
        running.append(backend)
        backend.wait_until_ready(**(metadata or {}))
        if load:
            assert backend.load("good").success
        return backend

    yield make
    for backend in running:
        backend.kill()
        assert "Traceback" not in backend.stderr.read_text()


@pytest.fixture(scope="module")
def backend(fake_library: Path, tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Backend]:
    """One server process for tests that leave it as it was: loaded and idle."""
    shared = Backend(fake_library, models, tmp_path_factory.mktemp("backend"))
    try:
        shared.wait_until_ready()
        assert shared.load("good").success
        yield shared
        assert "Traceback" not in shared.stderr.read_text()
    finally:
        shared.kill()

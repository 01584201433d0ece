"""End-to-end tests: a real model, and a real server process started and called as LocalAI does."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from localai_client import REPOSITORY, Backend
from models import FetchError, fetch

# A shell that starts this in the background has its children ignore Ctrl-C, and they would hand that on.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("runs", "greedy")  # their assertions tell values, as those of tests do

FIXTURES = REPOSITORY / "tests" / "fixtures"


def pytest_collection_modifyitems(items) -> None:
    for item in items:  # loads and real models take longer than the suite's common limit
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


def fetched(name: str) -> Path:
    try:
        return fetch(name)
    except FetchError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return fetched("smollm2")


@pytest.fixture(scope="session")
def oracle() -> dict:
    """Greedy answers of llama.cpp."""
    return json.loads((FIXTURES / "llama_cpp" / "smollm2.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def tiny() -> Path:
    """Folder of the tiny random checkpoints."""
    return FIXTURES / "transformers"


@pytest.fixture(scope="session")
def loaded(smollm2):
    """A client of a backend that holds SmolLM2 with default settings; tests leave it as it is."""
    with Backend() as backend:
        backend.client.load(smollm2)
        yield backend.client


@pytest.fixture(scope="session")
def small_context(smollm2):
    """A client of a backend whose context is 128 tokens."""
    with Backend() as backend:
        backend.client.load(smollm2, ContextSize=128)
        yield backend.client


@pytest.fixture(scope="session")
def library():
    """The library in this process, through the backend's own binding."""
    from vllm_backend.native import open_library

    return open_library()


@pytest.fixture(scope="session")
def package():
    """A packaged backend, in a folder that every user may enter, with its image beside it."""
    with tempfile.TemporaryDirectory(prefix="vllm package ") as folder:
        os.chmod(folder, 0o755)
        output = Path(folder) / "cpu-vllm-cpp"
        command = [sys.executable, REPOSITORY / "tools" / "package.py", "--image", "--output", output]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.fail(done.stderr or done.stdout, pytrace=False)
        yield output

"""Every command of the README is run: as it stands where it is cheap, else in a form that shows that it would start.

A command is a line of a block marked sh, or of an unmarked one that begins with a program, or a code span that begins
with a program. One that no rule below knows fails.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from localai_client import REPOSITORY, Backend, Client, free_port
from variants import VARIANTS

PROGRAM = re.compile(
    r"(\w+=\S+ )*(make|apt-get|sudo|git|curl|local-ai|(venv/bin/)?python|\w+/\S+\.(py|sh) |\./\S+|build/tests/\S+)"
)
SERVED_AT, MODEL = "127.0.0.1:50051", "/models/SmolLM2-135M-Instruct.Q4_1.gguf"


def commands(text: str) -> list[str]:
    found = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = [re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines()]
        if language == "sh" or (language == "" and PROGRAM.match(lines[0])):
            found += [line for line in lines if line]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found += [span for span in re.findall(r"`([^`\n]+)`", prose) if PROGRAM.match(span)]
    return list(dict.fromkeys(found))


README = commands((REPOSITORY / "README.md").read_text(encoding="utf-8"))


def run(command: str | list, **options) -> subprocess.CompletedProcess:
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, shell=isinstance(command, str), **options
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done


def with_our_python(command: str) -> str:
    """The environment of this run instead of the one in the folder, which need not be there."""
    return re.sub(r"(?<!\S)(venv/bin/)?python(?=\s)", shlex.quote(sys.executable), command)


# ---- How each is run ----


def make(command: str) -> None:
    """make knows the target and what it would do; installing, downloading and measuring are left out."""
    assert run(f"{command} --dry-run").stdout.strip()


def apt_get(command: str) -> None:
    """A Debian system knows the package: nothing is installed."""
    if shutil.which("apt-get") is None:
        pytest.skip("this is no Debian system")
    run(command.replace("apt-get", "apt-get --simulate", 1))


def install(command: str) -> None:
    run(f"{command} --help")


def local_ai(command: str, tmp_path: Path) -> None:
    """The host copies the folder under the given name and starts its run.sh there. What `make image` makes is tested
    elsewhere: here it has only to be called by its name."""
    *_, source, name = shlex.split(command)
    if source != "$PWD":
        assert source.removeprefix("ocifile://").startswith("$PWD/dist/")
        assert Path(source).name.removesuffix(".tar") in [
            variant.name for variant in VARIANTS.values() if variant.built
        ]
        return
    folder = tmp_path / "backends" / name
    left_out = shutil.ignore_patterns("build*", "venv", ".*", "tests", "results", "peers", "dist", "__pycache__")
    shutil.copytree(REPOSITORY, folder, ignore=left_out)
    (folder / "venv").symlink_to(Path(sys.prefix))
    with Backend(folder) as backend:
        assert backend.client.health() == b"OK"


def served(command: str, model: Path, check) -> None:
    """Started in the background, on a port of its own, until it answers."""
    address = f"127.0.0.1:{free_port()}"
    command = command.removesuffix("&").replace(MODEL, str(model))
    command = command.replace(SERVED_AT, address) if SERVED_AT in command else f"{command} --addr {address}"
    with subprocess.Popen(
        shlex.split(command), cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            client, deadline = Client(address), time.monotonic() + 30
            while True:
                with contextlib.suppress(grpc.RpcError):
                    if check(client):
                        return
                assert process.poll() is None and time.monotonic() < deadline, command
                time.sleep(0.1)
        finally:
            process.terminate()


def fuzz(command: str) -> None:
    """For a second instead of minutes, and one kind of input."""
    program = REPOSITORY / command.split()[-1]
    if not program.exists():
        pytest.skip("the native tests are not built")
    run(f"{re.sub('SECONDS=[0-9]+', 'SECONDS=1', command)} -sc=jinja")


def tool_help(command: str, tmp_path: Path) -> None:
    """The tool finds what it imports; llama.cpp's Python package, which is not ours to install, is stood in for."""
    (tmp_path / "llama_cpp.py").touch()
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    program = with_our_python(command).split(".py")[0] + ".py --help"
    if not program.startswith(shlex.quote(sys.executable)):
        program = f"{shlex.quote(sys.executable)} {program}"
    assert "usage:" in run(program, env={**os.environ, "PYTHONPATH": path}).stdout


# ---- The tests ----


def test_the_readme_has_its_commands():
    assert len(README) > 15
    for command in ("make demo", "./install.sh", f"./run.sh --addr {SERVED_AT} &", "make bench-text"):
        assert command in README


@pytest.mark.parametrize("command", [command for command in README if "tools/client.py" not in command])
def test_a_command_of_the_readme(command, smollm2, tmp_path):
    words = shlex.split(command)
    program = next(word for word in words if "=" not in word)
    if program == "make":
        make(command)
    elif program == "apt-get":
        apt_get(command)
    elif program == "local-ai":
        local_ai(command, tmp_path)
    elif program == "./install.sh":
        install(command)
    elif program == "./run.sh" and (command.endswith("&") or "HOST:PORT" in command):
        wanted = "READY" if " serve " in command else "UNINITIALIZED"
        served(command.replace("HOST:PORT", SERVED_AT), smollm2, lambda client: client.status()[0] == wanted)
    elif program == "./run.sh":
        run(command.replace(MODEL, shlex.quote(str(smollm2))), input="Hello\n/quit\n")
    elif program.endswith("fuzz_test"):
        fuzz(command)
    elif program.endswith("device_conformance_test"):
        if not (REPOSITORY / program).exists():
            pytest.skip("the native tests are not built")
        assert "attention" in run(f"{command} --list-test-cases").stdout
    elif program == "tools/gallery.py":
        (tmp_path / "cpu-vllm-cpp.tar").touch()
        assert "cpu-vllm-cpp" in run(f"{sys.executable} {command.replace('DIR', str(tmp_path))}").stdout
    elif re.search(r"(tools|bench)/\w+\.py", command):
        tool_help(command, tmp_path)
    else:
        pytest.fail(f"nobody checks the command {command!r} of the README")


def test_the_client_of_the_readme_calls_a_running_backend(smollm2):
    """In the order of the README, on one backend: the services, a load, a stream."""
    client_calls = [command for command in README if "tools/client.py" in command and SERVED_AT in command]
    assert len(client_calls) == 3
    with Backend() as backend:
        shown = [
            run(with_our_python(command).replace(SERVED_AT, backend.client.address).replace(MODEL, str(smollm2))).stdout
            for command in client_calls
        ]
    assert "PredictStream" in shown[0] and "success" in shown[1] and "Paris" in shown[2].replace('"\n"', "")

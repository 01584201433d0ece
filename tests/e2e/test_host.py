"""The packaged backend under a stand-in for LocalAI: installed from the folder and from the image, loaded by the first
request, asked in every way, idled out, upgraded, and stopped."""

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import grpc
import pytest
from localai_client import BackendError
from localai_host import Host, HostError, LoadedModel, ModelConfig
from runs import GREEDY, at_once, joined, said, strict_json, unary

NAME = "vllm-cpp"
QUESTION = "What is the capital of France? Answer in one short sentence."
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CITY_GRAMMAR = r"""root ::= "{" "\"city\":" string "," "\"big\":" ("true" | "false") "}"
string ::= "\"" [A-Za-z ]{1,12} "\"" """


@pytest.fixture
def config(smollm2) -> ModelConfig:
    return ModelConfig("smollm2", smollm2.name, NAME, engine_args={"max_num_seqs": 4}, attempts_sleep_s=0.2)


@pytest.fixture
def host(tmp_path, smollm2):
    with Host(tmp_path / "backends", smollm2.parent, idle_timeout_s=1.0) as host:
        yield host


def gone(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


def opened_by(loaded: LoadedModel) -> str:
    """The line of /proc that tells where the process has its library from."""
    maps = Path(f"/proc/{loaded.pid}/maps").read_text()
    return next(line for line in maps.splitlines() if "libvllm.so" in line)


def files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Name, content and whether it may be executed, of all but what the host writes itself."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if path.is_file() and path.name != "metadata.json" and "__pycache__" not in path.parts
    }


def test_folder_and_image_install_the_same(host, package):
    image = package.with_name(package.name + ".tar")
    assert host.install(str(package)) == package.name
    assert host.install(f"ocifile://{image}") == package.name
    assert host.install(f"ocifile://{image}", "another") == "another"
    assert files(host.backends / package.name) == files(host.backends / "another") == files(package)
    assert sorted(os.listdir(host.backends)) == ["another", package.name]
    assert json.loads((package / "metadata.json").read_text())["alias"] == NAME


def test_an_alias_is_enough(host, package):
    """The host keeps the alias in its own metadata; a folder that was copied by hand has ours."""
    shutil.copytree(package, host.backends / package.name)
    assert host.folder_of(NAME.upper()).name == package.name
    host.install(str(package), alias="other")
    assert host.folder_of("other").name == package.name
    with pytest.raises(HostError, match=NAME):
        host.folder_of(NAME)


def test_what_is_no_backend_replaces_none(host, package, tmp_path):
    host.install(str(package), NAME)
    before = files(host.backends / NAME)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.tar").write_bytes(package.with_name(package.name + ".tar").read_bytes()[:100_000])
    for argument in (tmp_path / "empty", f"ocifile://{tmp_path}/cut.tar", tmp_path / "none"):
        with pytest.raises(HostError):
            host.install(str(argument), NAME)
    assert os.listdir(host.backends) == [NAME]
    assert files(host.backends / NAME) == before


def test_a_life_under_the_host(host, package, config):
    host.install(f"ocifile://{package.with_name(package.name + '.tar')}", NAME)
    assert host.loaded == {}

    with host.request(config) as client:  # starts and loads
        answer = client.predict(**said(QUESTION, Tokens=24))
        assert b"Paris" in answer.message and answer.tokens > 0 and answer.prompt_tokens > 0
    loaded = host.loaded[config.name]
    pid = loaded.pid

    with host.request(config) as client:  # streaming gives the same
        assert joined(list(client.stream(**said(QUESTION, Tokens=24))))[0] == answer.message
        # Tokens that wait together leave together, so only a long answer is sure to come in pieces.
        assert len(list(client.stream(**said(QUESTION, Tokens=200, IgnoreEOS=True)))) > 2

    with host.request(config) as client:  # tools
        fields = {"Tools": json.dumps([WEATHER]), "ToolChoice": '"required"', "Tokens": 100}
        reply = client.predict(**said("What is the weather in Rome?", **fields))
        calls = [call for delta in reply.chat_deltas for call in delta.tool_calls]
        assert [call.name for call in calls][0] == "get_weather"
        assert "city" in strict_json(calls[0].arguments)

    with host.request(config) as client:  # the grammar that the host makes of a JSON schema
        reply = client.predict(**said("Describe Rome as JSON.", Grammar=CITY_GRAMMAR, Tokens=60))
        assert set(strict_json(reply.message.decode())) == {"city", "big"}

    def one(number: int) -> str:
        with host.request(config) as client:
            return unary(client, f"The number {number} is", Tokens=16, **GREEDY)

    alone = [one(number) for number in range(6)]
    assert at_once([lambda n=n: one(n) for n in range(6)]) == alone

    with host.request(config) as client:  # a client that goes away
        stream = client.stream("Once upon a time", Tokens=4000, IgnoreEOS=True, **GREEDY)
        next(stream)
        assert client.status()[0] == "BUSY"
        time.sleep(1.1)
        assert host.watch() == []  # busy for longer than the limit of idleness
        stream.close()
        deadline = time.monotonic() + 5
        while client.status()[0] != "READY":
            assert time.monotonic() < deadline
            time.sleep(0.05)

    loaded.last_health -= 31  # Health is asked again
    with host.request(config) as client:
        assert client.tokenize("Rome")
    assert loaded.last_health > time.monotonic() - 10
    assert host.loaded[config.name].pid == pid

    assert host.watch() == []
    time.sleep(1.1)
    assert host.watch() == [config.name]  # idled out
    assert gone(pid) and host.loaded == {}

    assert one(0) == alone[0]  # the next request starts it again
    pid = host.loaded[config.name].pid
    assert host.unload(config.name) < 5
    assert gone(pid)


def test_a_backend_that_died_is_started_again(host, package, config):
    host.install(str(package), NAME)
    with host.request(config) as client:
        assert client.health() == b"OK"
    loaded = host.loaded[config.name]
    os.kill(loaded.pid, signal.SIGKILL)
    loaded.process.process.wait()
    loaded.last_health -= 31
    with host.request(config) as client:
        assert client.predict("The", Tokens=2, IgnoreEOS=True).tokens == 2
    assert host.loaded[config.name].pid != loaded.pid


def test_a_model_that_cannot_be_loaded_leaves_no_process(host, package, config):
    host.install(str(package), NAME)
    missing = ModelConfig("none", "none.gguf", NAME, attempts_sleep_s=0.2)
    with pytest.raises(BackendError, match=r"could not load model .*none\.gguf"), host.request(missing):
        pass
    assert host.loaded == {}
    with host.request(config) as client:
        assert client.health() == b"OK"


def test_a_newer_version_is_installed_over_a_running_one(host, package, config, tmp_path):
    """What runs goes on to run, also with what it had not used yet, until its model is unloaded."""
    newer = tmp_path / "newer"
    shutil.copytree(package, newer)
    script = (newer / "run.sh").read_text()
    (newer / "run.sh").write_text(script.replace("set -eu\n", "set -eu\nexport NEWER_VERSION=1\n"))

    def is_newer(loaded: LoadedModel) -> bool:
        return b"\0NEWER_VERSION=1\0" in b"\0" + Path(f"/proc/{loaded.pid}/environ").read_bytes()

    host.install(str(package), NAME)
    with host.request(config) as client:
        stream = client.stream("Once upon a time", Tokens=300, IgnoreEOS=True, **GREEDY)
        next(stream)
        host.install(str(newer), NAME)
        *_, last = stream
        assert last.tokens == 300
    old = host.loaded[config.name]
    assert not is_newer(old) and opened_by(old).endswith("(deleted)")

    with host.request(config) as client:
        fields = {"Tools": json.dumps([WEATHER]), "ToolChoice": '"required"', "Tokens": 100}
        assert client.predict(**said("What is the weather in Rome?", **fields)).chat_deltas
        assert client.detokenize(client.tokenize("Rome")) == "Rome"
        assert client.metrics().tokens_generated > 300
    assert host.loaded[config.name].pid == old.pid

    assert host.unload(config.name) < 5
    with host.request(config) as client:
        assert client.predict("The", Tokens=2, IgnoreEOS=True).tokens == 2
    new = host.loaded[config.name]
    assert is_newer(new) and not opened_by(new).endswith("(deleted)")


def test_an_unload_waits_for_the_calls(host, package, config):
    host.install(str(package), NAME)
    done = threading.Event()

    def ask() -> None:
        with host.request(config) as client:
            started.set()
            with contextlib.suppress(grpc.RpcError):
                list(client.stream("Once upon a time", Tokens=100, IgnoreEOS=True, **GREEDY))
                done.set()

    started = threading.Event()
    worker = threading.Thread(target=ask)
    worker.start()
    assert started.wait(60)
    host.unload(config.name)
    worker.join(10)
    assert done.is_set()

"""The life of the process: starting, loading, freeing, ending."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import grpc
import pytest
from localai_client import REPOSITORY, Backend, BackendError, Client, free_port
from runs import GREEDY, unary


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_LOAD_03_health_soon_after_the_start():
    backend = Backend()
    try:
        while True:
            with contextlib.suppress(grpc.RpcError):
                assert backend.client.health(timeout=1) == b"OK"
                break
            assert time.monotonic() - backend.started < 10
            time.sleep(0.05)
        assert time.monotonic() - backend.started < 2
    finally:
        backend.stop()


def test_LOAD_03_health_while_a_model_loads(smollm2):
    with Backend() as backend:
        loader = threading.Thread(target=lambda: [backend.client.load(smollm2) for _ in range(5)])
        loader.start()
        slowest, calls = 0.0, 0
        while loader.is_alive():
            started = time.monotonic()
            assert backend.client.health() == b"OK"
            slowest, calls = max(slowest, time.monotonic() - started), calls + 1
        assert calls > 5
        assert slowest < 1
        assert backend.client.status()[0] == "READY"


def test_LOAD_07_calls_without_a_model(tiny):
    def not_loaded(client):
        for rpc, fields in (("Predict", {"Prompt": "a"}), ("TokenizeString", {"Prompt": "a"}), ("Detokenize", {})):
            with pytest.raises(grpc.RpcError) as caught:
                client.call(rpc, **fields)
            assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION, rpc
            assert "model not loaded" in caught.value.details()
        with pytest.raises(grpc.RpcError) as caught:
            list(client.stream("a"))
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION

    with Backend() as backend:
        assert backend.client.status()[0] == "UNINITIALIZED"
        not_loaded(backend.client)
        backend.client.load(tiny / "llama")
        assert backend.client.predict("a", Tokens=2, IgnoreEOS=True).tokens == 2
        backend.client.free()
        not_loaded(backend.client)


def test_LOAD_05_what_is_no_model_of_ours(tmp_path, tiny):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.gguf").write_text("this is a letter, not a model")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_bytes((tiny / "llama" / "config.json").read_bytes())
    other = tmp_path / "other"
    other.mkdir()
    for file in (tiny / "llama").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    config = (other / "config.json").read_text().replace("LlamaForCausalLM", "PelicanForCausalLM")
    (other / "config.json").write_text(config.replace('"llama"', '"pelican"'))
    with Backend() as backend:
        for name, word in (
            ("empty", "empty"),
            ("text.gguf", "text.gguf"),
            ("bare", ".safetensors"),
            ("other", "Pelican"),
            ("no", "no"),
        ):
            started = time.monotonic()
            with pytest.raises(BackendError) as caught:
                backend.client.load(tmp_path / name)
            assert time.monotonic() - started < 1, name
            assert word in str(caught.value) and "\n" not in str(caught.value)
        backend.client.load(tiny / "llama")
        assert backend.client.predict("a", Tokens=2, IgnoreEOS=True).tokens == 2


def test_LOAD_08_LOAD_11_settings(tiny):
    with Backend() as backend:
        client = backend.client
        with pytest.raises(BackendError, match=r"max_num_seqs.*many"):
            client.load(tiny / "llama", engine_args={"max_num_seqs": "many"})
        client.load(
            tiny / "llama",
            engine_args={"block_size": 64, "max_num_seq": 3},
            Options=["block_size:16", "--num_blocks:8", "--enable_prefix_caching"],
        )
        log = backend.stderr.read_text() + backend.stdout.read_text()
        warning = [line for line in log.splitlines() if "max_num_seq'" in line or '"max_num_seq"' in line]
        assert len(warning) == 1 and "max_num_seqs" in warning[0].split("max_num_seq", 1)[1]
        settings = [line for line in log.splitlines() if "block_size=64" in line]
        assert len(settings) == 1 and "num_blocks=8" in settings[0], log
        assert any("llama" in line.lower() and "F32" in line for line in log.splitlines()), log


@pytest.mark.parametrize("name", ["mistral", "qwen2", "qwen2-f16", "qwen3", "qwen3-bf16", "gemma3", "gemma3-old"])
def test_each_architecture_answers_over_the_wire(tiny, name):
    with Backend() as backend:
        for path in (tiny / name, *(tiny / name).glob("*.gguf")):
            backend.client.load(path)
            reply = backend.client.predict("Hello, world!", Tokens=8, IgnoreEOS=True, **GREEDY)
            assert reply.tokens == 8


def test_LIFE_03_twenty_rounds_of_load_and_free(smollm2):
    with Backend() as backend:
        sizes, texts = [], set()
        for _ in range(20):
            backend.client.load(smollm2)
            texts.add(unary(backend.client, "The capital of France is", Tokens=8, **GREEDY))
            backend.client.free()
            sizes.append(backend.memory())
        print("RssAnon after each free, MB:", [size >> 20 for size in sizes])
        assert len(texts) == 1
        assert sizes[-1] - sizes[4] < 10 << 20
        assert sizes[-1] < 200 << 20


def test_LIFE_03_a_second_load_replaces_the_first(tiny, smollm2):
    with Backend() as backend:
        backend.client.load(tiny / "llama")
        small = len(backend.client.tokenize("The capital of France is"))
        backend.client.load(smollm2)
        assert len(backend.client.tokenize("The capital of France is")) < small


@pytest.mark.parametrize("doing", ["idle", "streaming", "loading"])
def test_LIFE_02_terminate(smollm2, doing):
    with Backend() as backend:
        ended: list[object] = []
        if doing == "streaming":
            backend.client.load(smollm2)
            first = threading.Event()

            def read():
                try:
                    for _ in backend.client.stream("Once", Tokens=3000, IgnoreEOS=True, **GREEDY):
                        first.set()
                    ended.append("as if complete")
                except grpc.RpcError as error:
                    ended.append(error.code())

            reader = threading.Thread(target=read)
            reader.start()
            assert first.wait(30)
        elif doing == "loading":
            loader = threading.Thread(target=lambda: _swallow(lambda: backend.client.load(smollm2)))
            loader.start()
            time.sleep(0.1)
        pid = backend.process.pid
        assert backend.stop() < 5
        assert gone(pid)
        if doing == "streaming":
            reader.join(5)
            assert ended and ended[0] != "as if complete"
        elif doing == "loading":
            loader.join(5)


def _swallow(call) -> None:
    with contextlib.suppress(grpc.RpcError, BackendError):
        call()


PARENT = """
import subprocess, sys, time
process = subprocess.Popen([sys.argv[1], "--addr", sys.argv[2]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
print(process.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_LIFE_01_the_parent_is_killed(tiny, watched):
    port = free_port()
    environment = dict(os.environ, LOCALAI_BACKEND_PARENT_WATCH="true" if watched else "false")
    command = [sys.executable, "-c", PARENT, str(REPOSITORY / "run.sh"), f"127.0.0.1:{port}"]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    pid = int(parent.stdout.readline())
    try:
        client = Client(f"127.0.0.1:{port}")
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(grpc.RpcError):
                client.health(timeout=1)
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)
        client.load(tiny / "llama")
        stream = client.stream("Hello", Tokens=400, IgnoreEOS=True)
        next(stream)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 5
        while not gone(pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert gone(pid) == watched
        if watched:  # its last thread closes the port
            while listens(port):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        else:
            assert client.health() == b"OK"
    finally:
        parent.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(parent.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

"""The life of the process and of the model in it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from backend_process import Backend, wait_for
from conftest import Start
from vllm_backend import backend_pb2 as pb
from vllm_backend import parent

# A host that starts the backend, says its process id, and waits.
HOST = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:])
print("child", child.pid, flush=True)
child.wait()
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def port_is_free(backend: Backend) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(backend.address.rsplit(":", 1)[1])))
        except OSError:
            return False
        return True


def child_of(backend: Backend) -> int:
    line = next(line for line in backend.stdout.read_text().splitlines() if line.startswith("child "))
    return int(line.split()[1])


def test_life_01_parent_killed_while_streaming(start: Start) -> None:
    backend = start(load=True, wrapper=[sys.executable, "-c", HOST])
    pid = child_of(backend)
    with backend.open("PredictStream") as method:
        stream = method(pb.PredictOptions(Prompt="a !hang"))
        next(stream)
        begin = time.monotonic()
        backend.process.kill()
        backend.process.wait()
        wait_for(lambda: not alive(pid), 5)
        with pytest.raises(grpc.RpcError):
            list(stream)
    assert time.monotonic() - begin < 5
    wait_for(lambda: port_is_free(backend), 1)
    assert "is gone, so the backend ends" in backend.stderr.read_text().splitlines()[-1]


def test_life_01_can_be_turned_off(start: Start) -> None:
    environment = {"LOCALAI_BACKEND_PARENT_WATCH": "off", "LOCALAI_BACKEND_PARENT_WATCH_INTERVAL": "50ms"}
    backend = start(wrapper=[sys.executable, "-c", HOST], environment=environment)
    pid = child_of(backend)
    backend.process.kill()
    backend.process.wait()
    try:
        time.sleep(0.5)
        assert alive(pid)
        assert backend.call("Health", pb.HealthMessage()).message == b"OK"
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("source", "seconds"),
    [("", 2), ("3", 3), ("0.5", 0.5), ("500ms", 0.5), ("1m30s", 90), ("1.5s", 1.5), ("x", 2), ("-1", 2), ("nan", 2),
     ("inf", 2), ("5 s", 2), ("0", 2), ("1ns", parent.SHORTEST_INTERVAL_S), ("s", 2)],
)  # fmt: skip
def test_life_01_interval(source: str, seconds: float) -> None:
    assert parent.interval_s(source) == pytest.approx(seconds)


def terminate(backend: Backend, number: int = signal.SIGTERM) -> None:
    begin = time.monotonic()
    backend.process.send_signal(number)
    assert backend.process.wait(5) == 0
    assert time.monotonic() - begin < 5
    wait_for(lambda: port_is_free(backend), 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_life_02_stop_while_idle(start: Start, number: int) -> None:
    backend = start(load=True)
    terminate(backend, number)
    assert backend.events("engine_free") == [""]


def test_life_02_stop_while_streaming(start: Start) -> None:
    backend = start(load=True)
    with backend.open("PredictStream") as stream_method, backend.open("Predict") as unary_method:
        stream = stream_method(pb.PredictOptions(Prompt="a !hang"))
        unary = unary_method.future(pb.PredictOptions(Prompt="b !hang"))
        assert next(stream).message == b"a"
        wait_for(lambda: len(backend.events("submit")) == 2)
        terminate(backend)
        for call in (lambda: list(stream), unary.result):
            with pytest.raises(grpc.RpcError) as error:
                call()
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            assert error.value.details() == "the backend is shutting down"
    assert backend.all_released()


def test_life_02_stop_while_loading(start: Start) -> None:
    backend = start()
    codes: list[Any] = []
    loading = threading.Thread(
        target=lambda: codes.append(
            backend.status_of("LoadModel", pb.ModelOptions(Model="slow", ModelPath=str(backend.models)))
        )
    )
    loading.start()
    wait_for(lambda: backend.events("load"))
    terminate(backend)
    loading.join()
    assert codes[0][0] in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


def test_life_03_free_ends_requests_and_load_works_again(start: Start) -> None:
    backend = start(load=True)
    with backend.open("PredictStream") as method:
        stream = method(pb.PredictOptions(Prompt="a !hang"))
        assert next(stream).message == b"a"
        assert backend.call("Free", pb.HealthMessage(), timeout=5).success
        with pytest.raises(grpc.RpcError) as error:
            list(stream)
        assert error.value.code() == grpc.StatusCode.ABORTED
        assert "freed" in error.value.details()
    assert backend.all_released()
    assert backend.call("Free", pb.HealthMessage()).success  # nothing is loaded: nothing to do
    assert backend.load("good").success
    assert backend.predict("b").message == b"b"


def test_life_03_twenty_rounds_do_not_grow(start: Start) -> None:
    backend = start()
    sizes = []
    for _ in range(20):
        assert backend.load("good").success
        assert backend.predict("a b").message == b"a b"
        assert backend.call("Free", pb.HealthMessage()).success
        sizes.append(backend.call("Status", pb.HealthMessage()).memory.breakdown["resident"])
    assert len(backend.events("engine_free")) == 20
    # An engine of the fake library holds 8 MiB.
    assert sizes[-1] - sizes[3] < 8 << 20

"""The servicer as a process, on a named library, and called through the stubs, each call on a channel of its own."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from localai_client import BackendProcess
from vllm_backend import backend_pb2 as pb

ROOT = Path(__file__).resolve().parents[2]
MEGABYTES_50 = 50 * 1024 * 1024
METHODS = {method.name: method for method in pb.DESCRIPTOR.services_by_name["Backend"].methods}
CHANNEL = [("grpc.max_receive_message_length", MEGABYTES_50), ("grpc.max_send_message_length", -1)]


def wait_for(condition: Callable[[], Any], within_s: float = 5.0) -> Any:
    """The first true value of the condition; fails the test when there is none in time."""
    end = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.01)


def rpc(channel: Any, name: str) -> Any:
    method = METHODS[name]
    kind = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    return kind(
        f"/backend.Backend/{name}",
        request_serializer=message_factory.GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
    )


class Backend(BackendProcess):
    def __init__(
        self,
        library: Path,
        models: Path,
        folder: Path,
        environment: dict[str, str] | None = None,
        wrapper: list[str] | None = None,
        joined_address: bool = False,
        port: int = 0,
    ) -> None:
        self.models = models
        self.log = folder / "library.log"
        command = [*(wrapper or []), sys.executable, "-m", "vllm_backend"]
        ours = {
            "PYTHONPATH": str(ROOT / "python"),
            "VLLM_CPP_LIBRARY": str(library),
            "FAKE_VLLM_LOG": str(self.log),
            **(environment or {}),
        }
        super().__init__(command, folder, folder, ours, joined_address, port)

    def wait_until_ready(self, **metadata: str) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.stderr.read_text()
            try:
                return bool(self.call("Health", pb.HealthMessage(), timeout=1, **metadata).message == b"OK")
            except grpc.RpcError:
                return False

        wait_for(ready, 20)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Any]:
        with grpc.insecure_channel(self.address, options=CHANNEL) as channel:
            yield rpc(channel, name)

    def call(self, name: str, request: Any, timeout: float = 20, **metadata: str) -> Any:
        with self.open(name) as method:
            answer = method(request, timeout=timeout, metadata=list(metadata.items()) or None)
            return list(answer) if METHODS[name].server_streaming else answer

    def status_of(self, name: str, request: Any, **arguments: Any) -> tuple[grpc.StatusCode, str]:
        """The status of a call that has to fail."""
        try:
            self.call(name, request, **arguments)
        except grpc.RpcError as error:
            return error.code(), error.details()
        raise AssertionError(f"{name} succeeded")

    def load(self, model: str, timeout: float = 20, **fields: Any) -> Any:
        request = pb.ModelOptions(Model=model, ModelPath=str(self.models), **fields)
        return self.call("LoadModel", request, timeout=timeout)

    def predict(self, prompt: str, **fields: Any) -> Any:
        return self.call("Predict", pb.PredictOptions(Prompt=prompt, **fields))

    def stream(self, prompt: str, **fields: Any) -> list[Any]:
        return list(self.call("PredictStream", pb.PredictOptions(Prompt=prompt, **fields)))

    def state(self) -> Any:
        return self.call("Status", pb.HealthMessage(), timeout=1).state

    def events(self, word: str) -> list[str]:
        """What the library did: the rest of each line of its log that begins with the word."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line[len(word) + 1 :] for line in lines if line.split(" ")[0] == word]

    def all_released(self) -> bool:
        return sorted(self.events("submit")) == sorted(self.events("free"))

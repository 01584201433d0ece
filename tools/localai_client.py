"""Starts a backend and calls it the way LocalAI does: run.sh in its own process group, Health polled until it answers,
a fresh insecure connection for every call, request fields filled as the host fills them. Needs grpcio and protobuf."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
from wire import MESSAGES, PACKAGE, RPCS, STATES

REPOSITORY = Path(__file__).resolve().parent.parent
MESSAGE_LIMIT = 50 * 1024 * 1024
CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.use_local_subchannel_pool", 1),
]  # else channels of one address share a connection
HEALTH_ATTEMPTS, HEALTH_SLEEP, HEALTH_TIMEOUT = 20, 2.0, 10.0
TERM_GRACE = 15.0
GRPC_THREADS = ("event_engine", "grpc_global_tim", "lifeguard", "timer_manager")


class BackendError(Exception):
    """The backend did not start, ended, or refused to load; one sentence."""


class Client:
    """Calls of one address. Keyword arguments are wire fields, over what the host fills in by itself."""

    def __init__(self, address: str):
        self.address = address

    @contextlib.contextmanager
    def _channel(self):
        channel = grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)
        try:
            yield channel
        finally:
            channel.close()

    @staticmethod
    def _method(channel, rpc: str):
        facts = RPCS[rpc]
        kind = channel.unary_stream if facts["server_streaming"] else channel.unary_unary
        return kind(
            f"/{PACKAGE}.Backend/{rpc}",
            request_serializer=MESSAGES[facts["request"]].SerializeToString,
            response_deserializer=MESSAGES[facts["response"]].FromString,
        )

    def call(self, rpc: str, request=None, timeout: float | None = None, metadata=None, **fields):
        """A unary RPC; raises grpc.RpcError."""
        if request is None:
            request = MESSAGES[RPCS[rpc]["request"]](**fields)
        with self._channel() as channel:
            return self._method(channel, rpc)(request, timeout=timeout, metadata=metadata)

    def health(self, timeout: float = HEALTH_TIMEOUT) -> bytes:
        return self.call("Health", timeout=timeout).message

    def load(self, model: str | Path, timeout: float | None = 600, engine_args: dict | None = None, **fields) -> None:
        result = self.call("LoadModel", model_options(model, engine_args, **fields), timeout=timeout)
        if not result.success:
            raise BackendError(f"could not load model (no success): {result.message}")

    def predict(self, prompt: str = "", timeout: float | None = 600, **fields):
        """The unary Reply."""
        return self.call("Predict", predict_options(prompt, **fields), timeout=timeout)

    def stream(self, prompt: str = "", timeout: float | None = 600, **fields) -> "Stream":
        """The Replies as they come. The call begins at once; its text is in `message` of each."""
        channel = grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)
        call = self._method(channel, "PredictStream")(predict_options(prompt, **fields), timeout=timeout)
        return Stream(channel, call)

    def tokenize(self, text: str) -> list[int]:
        return list(self.call("TokenizeString", Prompt=text, timeout=60).tokens)

    def detokenize(self, tokens: list[int]) -> str:
        return self.call("Detokenize", tokens=tokens, timeout=60).content

    def status(self, timeout: float = 10) -> tuple[str, object]:
        """The state's name and the memory figures."""
        answer = self.call("Status", timeout=timeout)
        return STATES[answer.state], answer.memory

    def metrics(self):
        return self.call("GetMetrics", timeout=10)

    def free(self, timeout: float = 60) -> None:
        self.call("Free", timeout=timeout)


class Stream:
    """An iterator of Replies with a connection of its own."""

    def __init__(self, channel, call):
        self._channel, self._call = channel, call

    def __iter__(self) -> Iterator:
        return self

    def __next__(self):
        try:
            return next(self._call)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancels what still runs, as a client that goes away does."""
        self._call.cancel()
        self._channel.close()


def model_options(model: str | Path, engine_args: dict | None = None, **fields):
    """What the host sends for a model file with no settings but the given ones."""
    path = Path(model)
    filled = {
        "Model": str(model),
        "ModelFile": str(path),
        "ModelPath": str(path.parent),
        "ContextSize": 4096,
        "Threads": os.cpu_count() or 1,
        "NBatch": 512,
        "Seed": 4711,
        "MMap": True,
        "NGPULayers": 99999999,
        "FlashAttention": "auto",
        "EngineArgs": json.dumps(engine_args) if engine_args else "",
    }
    return MESSAGES["ModelOptions"](**(filled | fields))


def predict_options(prompt: str = "", **fields):
    """What the host sends for a prompt; its sampling defaults unless given."""
    filled = {
        "Prompt": prompt,
        "Temperature": 0.9,
        "TopP": 0.95,
        "TopK": 40,
        "Tokens": 0,
        "Seed": -1,
        "Penalty": 1.0,
        "Batch": 512,
        "Threads": os.cpu_count() or 1,
        "TypicalP": 1.0,
        "TailFreeSamplingZ": 1.0,
        "MMap": True,
    }
    return MESSAGES["PredictOptions"](**(filled | fields))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class BackendProcess:
    """A process that serves on a port of its own, in a process group of its own, its output in two files of `logs`."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        logs: Path,
        environment: dict[str, str] | None = None,
        one_word: bool = False,
        port: int = 0,
    ):
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.stdout, self.stderr = logs / "stdout", logs / "stderr"
        self.started = time.monotonic()
        with open(self.stdout, "wb") as out, open(self.stderr, "wb") as err:
            self.process = subprocess.Popen(
                [*command, *([f"--addr={self.address}"] if one_word else ["--addr", self.address])],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**{k: v for k, v in os.environ.items() if not k.startswith("LOCALAI_")}, **(environment or {})},
                start_new_session=True,
            )

    def kill(self) -> None:
        """Ends the whole group at once."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Backend(BackendProcess):
    """The backend of a folder, by its run.sh; a context manager that stops it."""

    def __init__(self, folder: Path = REPOSITORY, environment: dict[str, str] | None = None, one_word: bool = False):
        script = folder.resolve() / "run.sh"
        if not script.is_file():
            raise BackendError(f"{script} does not exist; a backend folder has one")
        self._logs = tempfile.TemporaryDirectory(prefix="backend-")
        super().__init__([str(script)], folder, Path(self._logs.name), environment, one_word)
        self.client = Client(self.address)

    def __enter__(self) -> "Backend":
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def wait_ready(self, sleep: float = HEALTH_SLEEP, attempts: int = HEALTH_ATTEMPTS) -> None:
        """Polls Health as the host does. A shorter sleep is for clients that have no need to be the host."""
        problem = "no attempt was made"
        for attempt in range(attempts):
            try:
                answer = self.client.health()
                if answer == b"OK":
                    return
                problem = f"Health answered {answer!r}"
            except grpc.RpcError as error:
                problem = f"{error.code().name}: {error.details()}"
            if self.process.poll() is not None:
                raise BackendError(
                    f"the backend ended with status {self.process.returncode} before it was ready: "
                    f"{self.last_error_line()}"
                )
            if attempt + 1 < attempts:
                time.sleep(sleep)
        raise BackendError(f"the backend did not answer Health within {attempts} attempts: {problem}")

    def last_error_line(self) -> str:
        """What the host shows when the process dies: the last non-empty line of the last 4096 bytes of stderr."""
        lines = [
            line for line in self.stderr.read_bytes()[-4096:].decode(errors="replace").splitlines() if line.strip()
        ]
        return lines[-1].strip() if lines else "it wrote nothing to stderr"

    def stop(self) -> float:
        """SIGTERM to the group, SIGKILL after the grace. Returns how many seconds the end took."""
        started = time.monotonic()
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(TERM_GRACE)
        took = time.monotonic() - started
        self.kill()
        return took

    def kill(self) -> None:
        super().kill()
        self._logs.cleanup()

    def memory(self) -> int:
        """Anonymous resident bytes: what the process itself holds, without mapped files."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise BackendError(f"process {self.process.pid} shows no RssAnon")

    def threads(self) -> int:
        """Threads of the backend and its library, without those that gRPC keeps for itself."""
        count = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that has just ended
                count += (task / "comm").read_text().strip() not in GRPC_THREADS
        return count

"""The server process: its port, its guards and its end."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from vllm_backend import logs, servicer
from vllm_backend.ending import StartError
from vllm_backend.errors import BackendError
from vllm_backend.lifecycle import Lifecycle, LoadError
from vllm_backend.replies import MESSAGE_BYTES

log = logging.getLogger(__name__)

# Of the 5 s that a stop may take: calls get the first to end with a status, freeing the model the second, and the
# third ends the process whatever hangs.
CALLS_GRACE_S = 1.0
FREE_GRACE_S = 1.5
STOP_LIMIT_S = 4.0


class TokenGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Refuses every call, also those of the health service, that does not carry the bearer token."""

    def __init__(self, token: str) -> None:
        self._needed = f"Bearer {token}".encode()

        async def refuse(requests: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the call carries no valid bearer token")

        self._refusal: Any = grpc.stream_stream_rpc_method_handler(refuse)

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        for key, value in handler_call_details.invocation_metadata or ():
            if key == "authorization":
                given = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
                if hmac.compare_digest(given, self._needed):
                    return await continuation(handler_call_details)
        return self._refusal


def make_server(lifecycle: Lifecycle) -> Any:
    token = os.environ.get("LOCALAI_GRPC_AUTH_TOKEN", "")
    server = grpc.aio.server(
        interceptors=[TokenGuard(token)] if token else [],
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
        ],
    )
    server.add_generic_rpc_handlers((servicer.handlers(lifecycle),))
    return server


def bind(server: Any, address: str) -> str:
    """The address with the port that was given, which is another one for port 0. Raises StartError."""
    host, _, port = address.rpartition(":")
    # gRPC takes the port modulo 65536, and 443 where there is none.
    if not (host and port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise StartError(f"the address is {address!r}; it must be HOST:PORT, with a port up to 65535")
    try:
        found = server.add_insecure_port(address)
    except (RuntimeError, ValueError):
        found = 0
    if found == 0:
        raise StartError(f"the address {address} cannot be used: {why_not_bound(host.strip('[]'), int(port))}")
    return f"{host}:{found}"


def why_not_bound(host: str, port: int) -> str:
    """What the system says of an address; gRPC does not tell."""
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return "gRPC refuses it"


async def preload(lifecycle: Lifecycle, request: Any, stop: asyncio.Event) -> str:
    """Loads a model as LoadModel does. Why that failed, which ends the server; else empty."""
    try:
        await lifecycle.load(request)
    except (LoadError, BackendError) as error:
        stop.set()
        return f"the model cannot be loaded: {error}"
    log.info("the model is loaded")
    return ""


async def serve(address: str, model: Any = None) -> None:
    """Serves until SIGTERM or SIGINT. `model` is the ModelOptions to load first, if any."""
    lifecycle = Lifecycle()
    server = make_server(lifecycle)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    names = (servicer.SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    for name in ("", *names):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    address = bind(server, address)

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start()
    log.info("listening on %s", address)
    loading = None if model is None else asyncio.create_task(preload(lifecycle, model, stop))

    await stop.wait()
    if loading is not None and loading.done() and loading.result():
        raise StartError(loading.result())
    log.info("stopping")
    limit = threading.Timer(STOP_LIMIT_S, os._exit, (0,))
    limit.daemon = True
    limit.start()
    lifecycle.refuse(BackendError(grpc.StatusCode.UNAVAILABLE, "the backend is shutting down"))
    await checks.enter_graceful_shutdown()
    await server.stop(CALLS_GRACE_S)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(lifecycle.free(), FREE_GRACE_S)


def run(address: str, model: Any = None) -> int:
    """Serves, and ends the process without waiting for threads that are inside the library."""
    logs.configure()
    asyncio.run(serve(address, model))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

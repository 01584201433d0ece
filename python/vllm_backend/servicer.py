"""The RPCs of service Backend. Those without a method here answer UNIMPLEMENTED by name."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from vllm_backend import backend_pb2, chat, sampling
from vllm_backend.errors import BackendError, identity_mismatch, invalid_argument, one_line
from vllm_backend.lifecycle import Lifecycle, LoadError
from vllm_backend.replies import ReplyWriter, clean, joined, sendable

log = logging.getLogger(__name__)

SERVICE = backend_pb2.DESCRIPTOR.services_by_name["Backend"]
INT32_MAX = 2**31 - 1

Behaviour = Callable[[Any, Any], Awaitable[Any]]


def resident_bytes() -> int:
    """Physical memory of this process."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Servicer:
    """Methods are named after their RPC, as the wire has it."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._requests = 0  # so far, numbers them in the log

    async def Health(self, request: Any, context: Any) -> backend_pb2.Reply:
        return backend_pb2.Reply(message=b"OK")

    async def LoadModel(self, request: Any, context: Any) -> backend_pb2.Result:
        try:
            await self._lifecycle.load(request)
        except LoadError as error:
            message = one_line(str(error))
            log.warning("the load failed: %s", message)
            return backend_pb2.Result(success=False, message=message)
        return backend_pb2.Result(success=True, message="the model is loaded")

    async def Free(self, request: Any, context: Any) -> backend_pb2.Result:
        await self._lifecycle.free()
        return backend_pb2.Result(success=True, message="no model is loaded now")

    async def Predict(self, request: Any, context: Any) -> backend_pb2.Reply:
        replies: list[backend_pb2.Reply] = []

        async def collect(reply: backend_pb2.Reply) -> None:
            replies.append(reply)

        await self._generate(request, collect)
        return sendable(joined(replies))

    async def PredictStream(self, request: Any, context: Any) -> None:
        await self._generate(request, context.write)

    async def _generate(self, request: Any, emit: Callable[[backend_pb2.Reply], Awaitable[None]]) -> None:
        """Runs a request and emits its Replies, the last one with last=True of the engine, as they come."""
        model = self._lifecycle.model
        ignored = [name for name in sampling.ignored_fields(request) if name not in model.warned]
        if ignored:
            model.warned.update(ignored)
            log.warning("these fields of requests have no effect here: %s", ", ".join(ignored))
        self._requests += 1
        number, kind = self._requests, "chat" if chat.is_chat(request) else "completion"
        writer = ReplyWriter(kind == "chat")
        end = "cancelled"
        try:
            async with self._lifecycle.generation(lambda: chat.request_json(request)) as generation:
                last = False
                while not last:
                    chunk, last = await generation.next()
                    reply = writer.reply(chunk, last)
                    if reply is not None:
                        await emit(sendable(reply))
            end = "done"
        except Exception as error:
            end = f"failed ({one_line(str(error))})"
            raise
        finally:
            log.debug("request %d, %s, %s: %s", number, kind, end, writer.summary())

    async def TokenizeString(self, request: Any, context: Any) -> backend_pb2.TokenizationResponse:
        answer = await self._lifecycle.convert({"query": "tokenize", "text": request.Prompt, "add_special": True})
        tokens = answer["tokens"]
        return backend_pb2.TokenizationResponse(length=len(tokens), tokens=tokens)

    async def Detokenize(self, request: Any, context: Any) -> backend_pb2.DetokenizeResponse:
        answer = await self._lifecycle.convert({"query": "detokenize", "tokens": list(request.tokens)})
        return backend_pb2.DetokenizeResponse(content=clean(answer["text"]))

    async def Status(self, request: Any, context: Any) -> backend_pb2.StatusResponse:
        states = backend_pb2.StatusResponse.State
        resident = resident_bytes()
        breakdown = {"resident": resident}
        try:
            planned = await self._lifecycle.ask({"query": "memory"})
        except BackendError:
            planned = {}
        breakdown.update({name: size for name, size in planned.items() if isinstance(size, int) and size >= 0})
        if self._lifecycle.busy:
            state = states.BUSY
        else:
            state = states.READY if self._lifecycle.loaded else states.UNINITIALIZED
        held = sum(size for name, size in breakdown.items() if name != "resident")
        if "device" in planned:
            breakdown[f"on {planned['device']}"] = held  # the protocol has no text for it
        memory = backend_pb2.MemoryUsageData(total=max(resident, held), breakdown=breakdown)
        return backend_pb2.StatusResponse(state=state, memory=memory)

    async def GetMetrics(self, request: Any, context: Any) -> backend_pb2.MetricsResponse:
        metrics = await self._lifecycle.ask({"query": "metrics"})
        return backend_pb2.MetricsResponse(
            tokens_per_second=float(metrics.get("tokens_per_second") or 0),
            tokens_generated=min(int(metrics.get("generated_tokens") or 0), INT32_MAX),
            prompt_tokens_processed=min(int(metrics.get("prompt_tokens") or 0), INT32_MAX),
        )

    async def ModelMetadata(self, request: Any, context: Any) -> backend_pb2.ModelMetadataResponse:
        template = self._lifecycle.model.info.get("chat_template")
        thinks = isinstance(template, str) and ("enable_thinking" in template or "<think>" in template)
        return backend_pb2.ModelMetadataResponse(supports_thinking=thinks)


def unimplemented(name: str) -> Behaviour:
    async def refuse(request: Any, context: Any) -> None:
        raise BackendError(grpc.StatusCode.UNIMPLEMENTED, f"{name} is not implemented by this backend")

    return refuse


def guarded(lifecycle: Lifecycle, method: Any, behaviour: Behaviour) -> Behaviour:
    """Reads the request, checks the model identity where it carries one, and turns errors into a status."""
    request_class = message_factory.GetMessageClass(method.input_type)

    def read(wire: Any) -> Any:
        if method.client_streaming:
            return wire
        try:
            request: Any = request_class.FromString(wire)
        except DecodeError:
            raise invalid_argument(f"the request of {method.name} is not a {method.input_type.name} message") from None
        asked, loaded = getattr(request, "ModelIdentity", ""), lifecycle.identity
        if asked and loaded and asked != loaded:
            raise identity_mismatch(loaded, asked)
        return request

    async def handle(wire: Any, context: Any) -> Any:
        try:
            return await behaviour(read(wire), context)
        except BackendError as error:
            code, message = error.code, str(error)
        except Exception as error:
            log.exception("%s failed", method.name)
            code = grpc.StatusCode.INTERNAL
            message = one_line(f"{method.name} failed: {type(error).__name__}: {error}")
        await context.abort(code, message)

    return handle


def handlers(lifecycle: Lifecycle) -> grpc.GenericRpcHandler:
    """All RPCs of the service descriptor."""
    servicer = Servicer(lifecycle)
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    methods: dict[str, Any] = {}
    for method in SERVICE.methods:
        behaviour = getattr(servicer, method.name, None) or unimplemented(method.name)
        methods[method.name] = kinds[method.client_streaming, method.server_streaming](
            guarded(lifecycle, method, behaviour),
            response_serializer=message_factory.GetMessageClass(method.output_type).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE.full_name, methods)

"""Chunks of vllm_ext_submit to Reply messages.

A unary answer is the joined stream, so both are made by the same code. Every Reply has the counts and timings so far:
the host overwrites its own with those of the last one.
"""

from __future__ import annotations

import json
from typing import Any

import grpc

from vllm_backend import backend_pb2
from vllm_backend.errors import BackendError, Status, engine_error
from vllm_backend.strict_json import to_json

MESSAGE_BYTES = 50 * 1024 * 1024  # most that a message may have, either way
SHORTEST_MS = 0.001  # what a phase that ran is reported with at least


def clean(text: Any) -> str:
    """Valid UTF-8 without U+FFFD, at which the host's decoder would stop for the rest of a stream."""
    if not isinstance(text, str):
        return ""
    return text.replace("\ufffd", "?").encode("utf-8", "replace").decode("utf-8")


def sendable(reply: backend_pb2.Reply) -> backend_pb2.Reply:
    size = reply.ByteSize()
    if size > MESSAGE_BYTES:
        message = f"the answer takes {size} bytes, and a message may have {MESSAGE_BYTES}"
        raise BackendError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
    return reply


class ReplyWriter:
    """Turns the chunks of one request into Replies, in order."""

    def __init__(self, chat: bool) -> None:
        self._chat = chat
        self._logprobs: list[Any] = []
        self._tokens = 0
        self._prompt_tokens = 0
        self._prompt_ms = 0.0
        self._generation_ms = 0.0
        self._queue_ms = 0.0
        self._cached_tokens = 0
        self._finish = "unfinished"

    def summary(self) -> str:
        """Counts and timings so far, for the log."""
        rate = 1e3 * (self._tokens - 1) / self._generation_ms if self._tokens > 1 else 0.0
        return (
            f"{self._prompt_tokens} prompt tokens ({self._cached_tokens} cached), {self._tokens} tokens, "
            f"queued {self._queue_ms:.0f} ms, prompt {self._prompt_ms:.0f} ms, generation {self._generation_ms:.0f} ms "
            f"({rate:.1f} tokens/s), {self._finish}"
        )

    def reply(self, chunk: bytes, last: bool) -> backend_pb2.Reply | None:
        """The Reply of a chunk; None where there is nothing to say yet. Raises the error that a chunk holds."""
        try:
            fields = json.loads(chunk.decode("utf-8", "replace")) if chunk.strip() or not last else {}
        except (ValueError, RecursionError) as error:
            raise engine_error(Status.UNKNOWN, f"the engine sent a chunk that is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise engine_error(Status.UNKNOWN, "the engine sent a chunk that is not a JSON object")
        if fields.get("error"):
            raise self._failure(fields["error"])
        self._count(fields)
        choices = fields.get("choices") or [{}]
        self._finish = choices[0].get("finish_reason") or self._finish
        text, delta = self._text(choices[0])
        if not last and not text and delta is None:
            return None
        reply = backend_pb2.Reply(
            message=text.encode("utf-8"),
            tokens=self._tokens,
            prompt_tokens=self._prompt_tokens,
            timing_prompt_processing=self._prompt_ms,
            timing_token_generation=self._generation_ms,
        )
        if delta is not None:
            reply.chat_deltas.append(delta)
        if last and self._logprobs:
            reply.logprobs = to_json({"content": self._logprobs}).encode("ascii")
        return reply

    @staticmethod
    def _failure(error: Any) -> BackendError:
        if not isinstance(error, dict):
            return engine_error(Status.UNKNOWN, str(error))
        status = error.get("status")
        return engine_error(status if isinstance(status, int) else Status.UNKNOWN, str(error.get("message") or ""))

    def _count(self, fields: dict[str, Any]) -> None:
        usage = fields.get("usage") or {}
        self._tokens = int(usage.get("completion_tokens") or self._tokens)
        self._prompt_tokens = int(usage.get("prompt_tokens") or self._prompt_tokens)
        details = usage.get("prompt_tokens_details") or {}
        self._cached_tokens = int(details.get("cached_tokens") or self._cached_tokens)
        timings = fields.get("timings") or {}
        self._queue_ms = float(timings.get("queue_ms") or self._queue_ms)
        if self._prompt_tokens:
            self._prompt_ms = max(float(timings.get("prompt_ms") or 0), self._prompt_ms, SHORTEST_MS)
        if self._tokens:
            self._generation_ms = max(float(timings.get("generation_ms") or 0), self._generation_ms, SHORTEST_MS)

    def _text(self, choice: dict[str, Any]) -> tuple[str, backend_pb2.ChatDelta | None]:
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):
            self._logprobs.extend(logprobs.get("content") or [])
        if not self._chat:
            return clean(choice.get("text")), None
        delta = choice.get("delta") or {}
        content, reasoning = clean(delta.get("content")), clean(delta.get("reasoning"))
        calls = [tool_call(call) for call in delta.get("tool_calls") or []]
        if not (content or reasoning or calls):
            return "", None
        return content, backend_pb2.ChatDelta(content=content, reasoning_content=reasoning, tool_calls=calls)


def tool_call(call: dict[str, Any]) -> backend_pb2.ToolCallDelta:
    function = call.get("function") or {}
    return backend_pb2.ToolCallDelta(
        index=int(call.get("index") or 0),
        id=clean(call.get("id")),
        name=clean(function.get("name")),
        arguments=clean(function.get("arguments")),
    )


def joined(replies: list[backend_pb2.Reply]) -> backend_pb2.Reply:
    """The unary answer: the texts in a row, one delta that merges all, the counts and logprobs of the last Reply."""
    whole = backend_pb2.Reply()
    whole.CopyFrom(replies[-1])
    whole.message = b"".join(reply.message for reply in replies)
    del whole.chat_deltas[:]
    deltas = [delta for reply in replies for delta in reply.chat_deltas]
    if not deltas:
        return whole
    merged = whole.chat_deltas.add()
    merged.content = "".join(delta.content for delta in deltas)
    merged.reasoning_content = "".join(delta.reasoning_content for delta in deltas)
    calls: dict[int, backend_pb2.ToolCallDelta] = {}
    arguments: dict[int, list[str]] = {}
    for call in (call for delta in deltas for call in delta.tool_calls):
        entry = calls.setdefault(call.index, backend_pb2.ToolCallDelta(index=call.index))
        entry.id = call.id or entry.id
        entry.name = call.name or entry.name
        arguments.setdefault(call.index, []).append(call.arguments)
    for index, entry in sorted(calls.items()):
        entry.arguments = "".join(arguments[index])
        merged.tool_calls.append(entry)
    return whole

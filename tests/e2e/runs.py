"""Greedy and seeded requests, over the wire and straight at the library, and the texts they give."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

GREEDY = {"Temperature": 0.0, "TopK": 0, "TopP": 1.0}
SEEDED = {"Temperature": 0.8, "TopK": 0, "TopP": 0.95, "Seed": 42}


def unary(client, prompt: str, **fields) -> str:
    return client.predict(prompt, **fields).message.decode("utf-8")


def streamed(client, prompt: str, **fields) -> str:
    return b"".join(reply.message for reply in client.stream(prompt, **fields)).decode("utf-8")


def at_once(work: list) -> list:
    """Runs the callables in a thread each; their results in order."""
    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result() for future in [pool.submit(call) for call in work]]


def said(text: str, *before: tuple[str, str], **fields) -> dict:
    """Fields of a chat request whose last message the user sent."""
    turns = [*before, ("user", text)]
    messages = [{"role": role, "content": content} for role, content in turns]
    return {"Messages": messages, "UseTokenizerTemplate": True, "Temperature": 0.0, "Tokens": 64, **fields}


def joined(replies: list) -> tuple:
    """The host's view of a stream: texts in a row, calls merged by index, the counts of the last Reply."""
    content, reasoning, calls = "", "", {}
    for delta in (delta for reply in replies for delta in reply.chat_deltas):
        parts = [bool(delta.content), bool(delta.reasoning_content), bool(delta.tool_calls)]
        assert len(replies) == 1 or sum(parts) == 1, "one delta holds text and a call"
        content += delta.content
        reasoning += delta.reasoning_content
        for call in delta.tool_calls:
            entry = calls.setdefault(call.index, ["", ""])
            assert not (entry[0] and call.name), "a name was sent twice"
            entry[0] += call.name
            entry[1] += call.arguments
    message = b"".join(reply.message for reply in replies)
    return message, content, reasoning, calls, replies[-1].tokens, replies[-1].prompt_tokens


def asked_both_ways(client, fields: dict) -> tuple:
    """The answer, which has to be the same streamed and unary."""
    whole = client.predict(**fields)
    assert len(whole.chat_deltas) <= 1
    unary = joined([whole])
    assert joined(list(client.stream(**fields))) == unary
    assert unary[0].decode() == unary[1], "the message is not the content"
    return unary


def strict_json(text: str):
    def refuse(word: str):
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


@dataclass
class Result:
    """One finished request of the library."""

    text: str = ""  # of the answer
    reasoning: str = ""
    calls: dict[int, dict] = field(default_factory=dict)  # by index: id, name, arguments
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict] = field(default_factory=list)
    finish: str | None = None
    usage: dict = field(default_factory=dict)
    error: dict | None = None


class Run:
    """A request that runs on an engine of vllm_backend.native: a prompt, or a chat where `messages` is given."""

    def __init__(self, engine, prompt=None, **fields):
        self.result = Result()
        self.first, self.ended = threading.Event(), threading.Event()
        request = {"temperature": 0.0, **fields} | ({} if prompt is None else {"prompt": prompt})
        self._request = engine.submit(json.dumps(request).encode(), self._deliver)

    def _deliver(self, chunk: bytes, last: bool) -> None:
        answer = json.loads(chunk)
        if "error" in answer:
            self.result.error = answer["error"]
        else:
            choice = answer["choices"][0]
            delta = choice.get("delta", {})
            self.result.text += choice.get("text") or delta.get("content") or ""
            self.result.reasoning += delta.get("reasoning", "")
            self._take_calls(delta.get("tool_calls", []))
            self.result.token_ids += choice.get("token_ids", [])
            self.result.logprobs += (choice["logprobs"] or {}).get("content", [])
            self.result.finish = choice["finish_reason"]
            self.result.usage = answer["usage"]
        self.first.set()
        if last:
            self.ended.set()

    def _take_calls(self, deltas: list[dict]) -> None:
        for delta in deltas:
            call = self.result.calls.setdefault(delta["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] = delta.get("id") or call["id"]
            call["name"] = delta["function"].get("name") or call["name"]
            call["arguments"] += delta["function"].get("arguments", "")

    def wait(self, timeout: float = 300) -> Result:
        try:
            assert self.ended.wait(timeout), "the request did not end"
        finally:
            self._request.free()
        assert self.result.error is None, self.result.error
        return self.result

    def cancel(self) -> None:
        self._request.cancel()
        self._request.free()


def load(library, path, settings: dict | None = None, **params):
    return library.load({"model_path": str(path), **params}, settings or {})

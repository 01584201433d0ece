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


@dataclass
class Result:
    """One finished request of the library."""

    text: str = ""
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

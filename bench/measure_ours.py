#!/usr/bin/env python3
"""Measures a group of figures on libvllm and prints them as JSON. Started by run.py."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "python"))
sys.path.insert(0, str(REPOSITORY / "tools"))

import workload  # noqa: E402
from localai_client import Backend  # noqa: E402
from vllm_backend.native import open_library  # noqa: E402

LIMITS = REPOSITORY / "build" / "bench" / "native" / "limits"


def limits(threads: int) -> dict[str, float]:
    """What the machine can do just now: "read" in GB/s, "int8" and "bf16" in G operations/s."""
    return json.loads(subprocess.run([LIMITS, str(threads)], check=True, capture_output=True).stdout)


class Stream:
    """A running request: when its tokens came."""

    def __init__(self, engine, prompt: list[int], tokens: int):
        self.first = self.last = 0.0
        self.tokens = 0
        self.error = None
        self._ended = threading.Event()
        fields = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        self._request = engine.submit(json.dumps(fields).encode(), self._deliver)

    def _deliver(self, chunk: bytes, last: bool) -> None:
        now = time.perf_counter()
        answer = json.loads(chunk)
        self.error = answer.get("error")
        if not self.error:
            self.tokens = answer["usage"]["completion_tokens"]
            if self.tokens and not self.first:
                self.first = now
        self.last = now
        if last:
            self._ended.set()

    def wait(self, tokens: int) -> "Stream":
        self._ended.wait()
        self._request.free()
        if self.error or self.tokens != tokens:
            raise SystemExit(f"a request ended after {self.tokens} of {tokens} tokens: {self.error}")
        return self


class Engine:
    def __init__(self, model: str, threads: int, context: int):
        blocks = max(context, 16 * 128) // 32
        params = {"model_path": model, "max_model_len": context, "max_num_seqs": 16, "num_blocks": blocks}
        self._engine = open_library().load(params, {"threads": threads})
        self._vocabulary = self._engine.query({"query": "info"})["vocab_size"]
        self.decode(8, 8, 1)  # first use of every code path

    def _start(self, length: int, seed: int, tokens: int) -> Stream:
        return Stream(self._engine, workload.token_ids(length, self._vocabulary, seed), tokens)

    def prefill(self, length: int, seed: int) -> float:
        begin = time.perf_counter()
        return length / (self._start(length, seed, 1).wait(1).last - begin)

    def decode(self, length: int, tokens: int, seed: int) -> float:
        stream = self._start(length, seed, tokens).wait(tokens)
        return (tokens - 1) / (stream.last - stream.first)

    def streams(self, count: int, seed: int) -> float:
        begin = time.perf_counter()
        running = [self._start(workload.PROMPT, 1000 * seed + n, workload.STREAM_TOKENS) for n in range(count)]
        end = max(stream.wait(workload.STREAM_TOKENS).last for stream in running)
        return count * workload.STREAM_TOKENS / (end - begin)


def served(group: str, model: str, threads: int, seed: int) -> dict:
    """Through the backend, called as the host calls it."""
    with Backend() as backend:
        args = {"max_num_seqs": workload.CLIENTS, "num_blocks": 1024}
        backend.client.load(model, engine_args=args, Threads=threads, ContextSize=4096)

        def send(prompt: str, tokens: int) -> tuple[int, float]:
            first = 0.0
            for reply in backend.client.stream(prompt, Tokens=tokens, Temperature=0, IgnoreEOS=True):
                first = first or time.perf_counter()
                last = reply
            if last.tokens != tokens:
                raise SystemExit(f"a request ended after {last.tokens} of {tokens} tokens")
            return last.tokens + last.prompt_tokens, first

        return workload.served(group, send, seed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("group")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    seed = 100 * arguments.seed
    if arguments.group == "speed":
        engine = Engine(arguments.model, arguments.threads, 2080)
        engine.prefill(2000, seed + 1)  # llama-bench too runs once unmeasured
        figures = {"prefill 512": engine.prefill(512, seed + 2), "prefill 2000": engine.prefill(2000, seed + 3)}
        # The memory's speed drifts within seconds, so its limit is taken on both sides of what it limits.
        before = limits(arguments.threads)
        figures["decode"] = engine.decode(workload.PROMPT, workload.DECODE, seed + 4)
        after = limits(arguments.threads)
        figures |= {key: (before[key] + after[key]) / 2 for key in before}
        figures |= {"streams 4": engine.streams(4, seed + 5), "streams 16": engine.streams(16, seed + 6)}
    elif arguments.group == "long":
        engine = Engine(arguments.model, arguments.threads, 8096)
        figures = {"decode 8000": engine.decode(workload.LONG, workload.LONG_TOKENS, seed + 7)}
    else:
        figures = served(arguments.group, arguments.model, arguments.threads, arguments.seed)
    print(json.dumps(figures), flush=True)
    os._exit(0)  # the engine's own clean-up is not part of it


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""One run of the workload on libvllm, in this process and without the server. Started by run.py."""

import argparse
import json
import sys
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "python"))

import workload  # noqa: E402
from vllm_backend.native import open_library  # noqa: E402


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
            raise SystemExit(f"worker_ours: a request ended after {self.tokens} of {tokens} tokens: {self.error}")
        return self


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    library = open_library()
    before = workload.resident()
    started = time.perf_counter()
    params = {
        "model_path": arguments.model,
        "max_model_len": 1024,
        "max_num_seqs": 16,
        "block_size": 32,
        "num_blocks": workload.POOL // 32,
    }
    engine = library.load(params, {"threads": arguments.threads})
    Stream(engine, [1000], 1).wait(1)
    load_seconds = time.perf_counter() - started
    vocabulary = engine.query({"query": "info"})["vocab_size"]

    def prefill(length: int, seed: int) -> float:
        begin = time.perf_counter()
        return length / (Stream(engine, workload.prompt(length, vocabulary, seed), 1).wait(1).last - begin)

    def decode(tokens: int, seed: int) -> float:
        stream = Stream(engine, workload.prompt(workload.PROMPT, vocabulary, seed), tokens).wait(tokens)
        return (tokens - 1) / (stream.last - stream.first)

    def streams(count: int, seed: int) -> float:
        prompts = [workload.prompt(workload.PROMPT, vocabulary, 1000 * seed + n) for n in range(count)]
        begin = time.perf_counter()
        running = [Stream(engine, prompt, workload.STREAM_TOKENS) for prompt in prompts]
        end = max(stream.wait(workload.STREAM_TOKENS).last for stream in running)
        return count * workload.STREAM_TOKENS / (end - begin)

    workload.report(load_seconds, prefill, decode, streams, before, f"libvllm {library.version()}")


if __name__ == "__main__":
    main()

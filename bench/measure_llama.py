"""Measures llama.cpp with its own programs: llama-bench, llama-batched-bench and llama-server."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import workload


def _lines(command: list) -> list[dict]:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        last = ([line for line in done.stderr.splitlines() if line.strip()] or ["no output"])[-1]
        raise RuntimeError(f"{Path(command[0]).name} ended with status {done.returncode}: {last}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Llama:
    def __init__(self, folder: Path):
        self._folder = folder

    def _bench(self, model: Path, threads: int, *options) -> list[float]:
        """Tokens/s of each test."""
        command = [self._folder / "llama-bench", "-m", model, "-t", threads, "-r", 1, "-o", "jsonl", *options]
        return [line["avg_ts"] for line in _lines(command)]

    def speed(self, model: Path, threads: int, seed: int) -> dict:
        prefill_512, prefill_2000 = self._bench(model, threads, "-n", 0, "-p", "512,2000")
        (decode,) = self._bench(model, threads, "-p", 0, "-n", workload.DECODE)
        batched = _lines(
            [self._folder / "llama-batched-bench", "-m", model, "-t", threads, "-c", 2048, "-npp", workload.PROMPT]
            + ["-ntg", workload.STREAM_TOKENS, "-npl", "4,16", "--output-format", "jsonl"]
        )
        figures = {"prefill 512": prefill_512, "prefill 2000": prefill_2000, "decode": decode}
        for line in batched:
            figures[f"streams {line['pl']}"] = line["pl"] * line["tg"] / line["t"]
        return figures

    def long(self, model: Path, threads: int, seed: int) -> dict:
        # Flash attention, its default, fills a cache faster and decodes some models several times slower.
        both = self._bench(model, threads, "-p", 0, "-n", workload.LONG_TOKENS, "-d", workload.LONG, "-fa", "0,1")
        return {"decode 8000": max(both)}

    def start_command(self, model: Path, threads: int) -> list:
        """A program that loads the model, computes one token and ends."""
        return [self._folder / "llama-bench", "-m", model, "-t", threads, "-p", 1, "-n", 0, "-r", 1, "--no-warmup"]

    def served(self, group: str, model: Path, threads: int, seed: int) -> dict:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [self._folder / "llama-server", "-m", model, "-t", threads, "--port", port, "--no-webui"]
        command += ["-np", workload.CLIENTS, "-c", 2304 * workload.CLIENTS, "--kv-unified"]
        with tempfile.TemporaryFile() as log:
            server = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
            try:
                while not _healthy(port):
                    if server.poll() is not None:
                        raise RuntimeError(f"llama-server ended with status {server.returncode}")
                    time.sleep(0.05)

                def send(prompt: str, tokens: int) -> tuple[int, float]:
                    fields = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True}
                    return stream(port, "/completion", fields, _count)

                return workload.served(group, send, seed)
            finally:
                server.terminate()
                server.wait()


def _count(event: dict) -> int:
    timings = event.get("timings")
    return event["tokens_evaluated"] + timings["predicted_n"] if event.get("stop") and timings else 0


def _healthy(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def stream(port: int, path: str, fields: dict, count) -> tuple[int, float]:
    """Posts a request for server-sent events; the tokens that `count` finds in them, and the time of the first."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", path, json.dumps(fields | {"stream": True}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{path} answered {response.status}: {response.read(300)!r}")
    first, tokens = 0.0, 0
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        first = first or time.perf_counter()
        tokens += count(json.loads(line[6:]))
    connection.close()
    return tokens, first

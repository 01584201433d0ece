"""What every engine is asked for, and the line of JSON a worker answers with."""

import json
import os
import random
import resource
import sys
from collections.abc import Callable

PREFILL, DECODE, PROMPT, STREAM_TOKENS = 512, 128, 16, 64
STREAMS = (4, 8, 16)
POOL = 4096  # tokens of KV cache


def prompt(length: int, vocabulary: int, seed: int) -> list[int]:
    """Token ids that mean nothing and repeat nowhere, so that no cache helps; ordinary ids only."""
    generator = random.Random(seed)
    return [generator.randrange(1000, min(vocabulary, 40000)) for _ in range(length)]


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def report(
    load_seconds: float, prefill: Callable, decode: Callable, streams: Callable, before: int, engine: str
) -> None:
    """Runs the workload and prints its figures. The callables get (tokens or streams, seed) and return tokens/s."""
    figures = {"load": load_seconds}
    decode(8, 1)  # first use of every code path
    figures["prefill"] = prefill(PREFILL, 2)
    figures["decode"] = decode(DECODE, 3)
    for count in STREAMS:
        figures[f"streams {count}"] = streams(count, 10 + count)
    figures["memory"] = peak() - before
    print(json.dumps({"engine": engine, "figures": figures}), flush=True)
    sys.stdout.flush()
    os._exit(0)  # the engines' own clean-up is not part of it

"""The work every engine is given, from seeds: the same for all."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

DECODE, PROMPT, STREAM_TOKENS = 128, 16, 64
LONG, LONG_TOKENS = 8000, 32
CLIENTS, REQUESTS = 16, 48
PREFIX = 2000


def token_ids(length: int, vocabulary: int, seed: int) -> list[int]:
    """Token ids that mean nothing and repeat nowhere, so that no cache helps; ordinary ids only."""
    generator = random.Random(seed)
    return [generator.randrange(1000, min(vocabulary, 40000)) for _ in range(length)]


def text(words: int, seed: int) -> str:
    """Words of common letters, about 2.5 tokens each."""
    generator = random.Random(seed)
    return " ".join("".join(generator.choices("etaoinshrdlu", k=generator.randint(2, 7))) for _ in range(words))


@dataclass(frozen=True)
class Job:
    """`start`: seconds after the first one may be sent."""

    start: float
    prompt: str
    tokens: int


def jobs(seed: int) -> list[Job]:
    """Prompts of 50 to 1,000 tokens, outputs of 16 to 256, both spread evenly over the logarithm of their length, and
    arrivals that keep CLIENTS clients busy."""
    generator = random.Random(seed)
    out, start = [], 0.0
    for index in range(REQUESTS):
        words = int(20 * 20 ** generator.random())
        tokens = int(16 * 16 ** generator.random())
        out.append(Job(start, text(words, 1000 * seed + index), tokens))
        start += generator.expovariate(20)
    return out


def serve(send: Callable[[str, int], tuple[int, float]], seed: int) -> float:
    """Tokens/s, of prompts and outputs together, over the jobs of CLIENTS clients. `send` returns the tokens of a job
    and the time of its first one."""
    todo = jobs(seed)
    lock = threading.Lock()
    counts: list[int] = []
    errors: list[BaseException] = []
    begin = time.perf_counter()

    def client() -> None:
        while True:
            with lock:
                if not todo or errors:
                    return
                job = todo.pop(0)
            time.sleep(max(0.0, begin + job.start - time.perf_counter()))
            try:
                count, _ = send(job.prompt, job.tokens)
            except BaseException as error:
                errors.append(error)
                return
            with lock:
                counts.append(count)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(counts) / (time.perf_counter() - begin)


def cached_prefix(send: Callable[[str, int], tuple[int, float]], seed: int) -> float:
    """Seconds to the first token of a prompt of PREFIX cached tokens and a few new ones, the median of three."""
    prefix = text(int(PREFIX / 2.5), 77 * seed)
    send(prefix + " " + text(4, 77 * seed + 1), 1)
    times = []
    for number in range(3):
        prompt = prefix + " " + text(4, 77 * seed + 2 + number)
        begin = time.perf_counter()
        times.append(send(prompt, 4)[1] - begin)
    return statistics.median(times)


def served(group: str, send: Callable[[str, int], tuple[int, float]], seed: int) -> dict:
    """The figures of the groups that are measured through a server."""
    send("a", 8)
    return {"mixed": serve(send, seed)} if group == "serving" else {"cached prefix": cached_prefix(send, seed)}

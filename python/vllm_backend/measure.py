"""python -m vllm_backend bench MODEL: how fast a model runs on this machine, in under a minute for a small one."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import Any

from vllm_backend import command_line, direct
from vllm_backend.ending import StartError
from vllm_backend.errors import BackendError
from vllm_backend.native import Engine


@dataclass
class Run:
    """One request that ran to its token limit."""

    prompt_tokens: int
    tokens: int
    prompt_ms: float
    generation_ms: float


def run(engine: Engine, prompt: list[int], tokens: int) -> Run:
    request = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    *_, last = direct.stream(engine, request)
    usage, times = last["usage"], last["timings"]
    return Run(usage["prompt_tokens"], usage["completion_tokens"], times["prompt_ms"], times["generation_ms"])


def prompt_of(source: random.Random, vocabulary: int, length: int) -> list[int]:
    """Tokens that no other prompt shares, so that nothing of it is cached."""
    return [source.randrange(vocabulary) for _ in range(length)]


def together(engine: Engine, prompts: list[list[int]], tokens: int) -> float:
    """Tokens a second of requests that run at once, their prompts included in the time."""
    made: list[int] = []
    failed: list[BackendError] = []

    def one(prompt: list[int]) -> None:
        try:
            made.append(run(engine, prompt, tokens).tokens)
        except BackendError as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(prompt,)) for prompt in prompts]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return sum(made) / (time.monotonic() - begin)


def table(engine: Engine, facts: dict[str, Any], prompt_tokens: int, tokens: int) -> list[tuple[str, float]]:
    """What was measured and its tokens a second."""
    source, vocabulary = random.Random(7), int(facts["vocab_size"])
    room = int(facts["max_model_len"])
    short = min(16, room // 4)
    prompt_tokens, tokens = min(prompt_tokens, room - 2), min(tokens, room - short - 1)
    if tokens < 2 or prompt_tokens < 1:
        raise StartError(f"the context of {room} tokens is too short to measure anything")
    run(engine, prompt_of(source, vocabulary, short), 2)  # memory that the first step touches
    rows = []
    prefills = [run(engine, prompt_of(source, vocabulary, prompt_tokens), 1) for _ in range(2)]
    rows.append((f"prefill, {prompt_tokens} tokens", 1e3 * prompt_tokens / min(one.prompt_ms for one in prefills)))
    decodes = [run(engine, prompt_of(source, vocabulary, short), tokens) for _ in range(2)]
    rows.append((f"decode, {tokens} tokens", 1e3 * (tokens - 1) / min(one.generation_ms for one in decodes)))
    for streams in (2, 4, 8):
        if streams <= int(facts["max_num_seqs"]):
            prompts = [prompt_of(source, vocabulary, short) for _ in range(streams)]
            rows.append((f"{streams} streams of {tokens} tokens, together", together(engine, prompts, tokens)))
    return rows


def main(arguments: list[str]) -> int:
    parser = command_line.parser_for("bench", "Measures prefill, decode and several streams of a model.", True)
    parser.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="length of the prefill")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens that each stream generates")
    parsed = parser.parse_args(arguments)
    for name, value, least in (("--tokens", parsed.tokens, 2), ("--prompt-tokens", parsed.prompt_tokens, 1)):
        if value < least:
            parser.error(f"{name} is {value}, needed is at least {least}")
    request = command_line.needed_model(parsed, parser)
    direct.be_quiet()
    begin = time.monotonic()
    with direct.loaded(request) as model:
        facts = model.facts
        print(f"{request.ModelFile}: {facts['architecture']}, {facts['formats']}, on {facts['device']}")
        print(f"{'load':36}{time.monotonic() - begin:10.2f} s", flush=True)
        try:
            rows = table(model.engine, facts, parsed.prompt_tokens, parsed.tokens)
        except BackendError as error:
            raise StartError(f"the measurement failed: {error}") from None
        for name, rate in rows:
            print(f"{name:36}{rate:10.1f} tokens/s")
    return 0

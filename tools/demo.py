#!/usr/bin/env python3
"""Shows the backend at work: fetches a small chat model, starts run.sh as LocalAI does, loads the model, holds a chat
of two turns whose answers are printed while they come, and asks for one answer as JSON of a given schema.

    python tools/demo.py [PROMPT]            or PROMPT=... in the environment, as `make demo PROMPT=...` sets it

PROMPT takes the place of the first question.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import time

try:
    import grpc
    from localai_client import REPOSITORY, Backend, BackendError
except ImportError as missing:
    sys.exit(f"demo: {missing}; run ./install.sh and use venv/bin/python")
from models import FetchError, fetch

QUESTION = "What is the capital of France? Answer in one sentence."
NEXT_QUESTION = "And what is it famous for? Answer in one sentence."
MORE = "Say that again in other words, in one sentence."  # follows any question
JSON_QUESTION = "Describe the city of Paris as JSON."
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "country": {"type": "string", "maxLength": 20},
        "population": {"type": "integer", "minimum": 1, "maximum": 99_999_999},
        "is_capital": {"type": "boolean"},
    },
    "required": ["city", "country", "population", "is_capital"],
    "additionalProperties": False,
}


@contextlib.contextmanager
def step(what: str):
    """A line that says what is done, with the seconds once that takes more than two, and how long it took."""
    terminal, started, done = sys.stderr.isatty(), time.monotonic(), threading.Event()

    def show() -> None:
        wait = 2.0
        while not done.wait(wait):
            wait = 1.0 if terminal else 10.0
            print(
                f"{chr(13) if terminal else ''}{what} ... {time.monotonic() - started:.0f} s",
                end="" if terminal else "\n",
                file=sys.stderr,
                flush=True,
            )

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    failed = True
    try:
        yield
        failed = False
    finally:
        done.set()
        watcher.join()
        took = f"{time.monotonic() - started:.1f} s"
        print(f"{chr(13) if terminal else ''}{what}: {'failed after ' + took if failed else took}", file=sys.stderr)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(client, messages: list[dict], tokens: int, show_whole=None, **fields) -> str:
    """Shows the answer to the last message while it comes, or with `show_whole` once it is there, and its times."""
    started, first, last, text = time.monotonic(), None, None, ""
    fields = {"Messages": messages, "UseTokenizerTemplate": True, "Tokens": tokens, "Temperature": 0.0, **fields}
    for reply in client.stream(**fields):
        if reply.message and first is None:
            first = time.monotonic()
        text += reply.message.decode("utf-8")
        if show_whole is None:
            sys.stdout.write(reply.message.decode("utf-8"))
            sys.stdout.flush()
        last = reply
    ended = time.monotonic()
    if last is None or first is None:
        raise BackendError("the backend answered without any text")
    if show_whole is None:
        print(flush=True)
    else:
        show_whole(text)
    rate = f"{(last.tokens - 1) / (ended - first):.0f} tokens/s" if last.tokens > 1 else "one token"
    print(
        f"\n{last.prompt_tokens} prompt tokens in {last.timing_prompt_processing:.0f} ms, first text after "
        f"{(first - started) * 1000:.0f} ms, {last.tokens} tokens in {last.timing_token_generation:.0f} ms ({rate})",
        file=sys.stderr,
    )
    return text


def chat(client, questions: list[str], tokens: int) -> None:
    messages: list[dict[str, str]] = []
    for question in questions:
        print(f"\n> {question}\n", flush=True)
        messages.append(user(question))
        messages.append({"role": "assistant", "content": answer(client, messages, tokens)})


def show_json(text: str) -> None:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BackendError(f"the answer {text!r} is not JSON: {error}; --tokens may be too small") from None
    print(json.dumps(found, indent=2, ensure_ascii=False), flush=True)


def answer_as_json(client, tokens: int) -> None:
    """A JSON Schema as the request's grammar: what comes back fits it, whatever the model would rather say."""
    print(f"\n> {JSON_QUESTION} (with a schema)\n", flush=True)
    answer(client, [user(JSON_QUESTION)], tokens, show_json, Grammar=json.dumps(CITY))


def run(prompt: str, tokens: int) -> None:
    model = fetch("smollm2")
    backend = Backend()
    try:
        with step(f"starting ./run.sh --addr {backend.client.address}"):
            backend.wait_ready(sleep=0.05, attempts=800)
        with step(f"loading {model.name}"):
            backend.client.load(model)
        chat(backend.client, [prompt, NEXT_QUESTION if prompt == QUESTION else MORE], tokens)
        answer_as_json(backend.client, tokens)
        backend.client.free()
    except BaseException:
        if backend.process.poll() is not None:
            print(f"the backend has ended; its last line: {backend.last_error_line()}", file=sys.stderr)
        raise
    finally:
        backend.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prompt", nargs="?", default=os.environ.get("PROMPT") or QUESTION)
    parser.add_argument("--tokens", type=int, default=256, metavar="N", help="longest answer, in tokens")
    arguments = parser.parse_args()
    try:
        run(arguments.prompt, arguments.tokens)
    except (FetchError, BackendError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"demo: the call failed with {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"demo: {error}; the backend is started from {REPOSITORY}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

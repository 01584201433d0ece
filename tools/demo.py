#!/usr/bin/env python3
"""Shows the backend at work: fetches a small chat model, starts run.sh as LocalAI does, loads the model, and prints the
answer to a prompt while it comes.

    python tools/demo.py [PROMPT]            or PROMPT=... in the environment, as `make demo PROMPT=...` sets it
"""

import argparse
import contextlib
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
# SmolLM2's own chat form, written out: what LocalAI's template for it would send as the prompt.
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)


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


def answer(client, prompt: str, tokens: int) -> None:
    started, first, last = time.monotonic(), None, None
    for reply in client.stream(CHAT.format(prompt), Tokens=tokens, Temperature=0.0):
        if reply.message and first is None:
            first = time.monotonic()
        sys.stdout.write(reply.message.decode("utf-8"))
        sys.stdout.flush()
        last = reply
    ended = time.monotonic()
    print(flush=True)
    if last is None or first is None:
        raise BackendError("the backend answered without any text")
    rate = f"{(last.tokens - 1) / (ended - first):.0f} tokens/s" if last.tokens > 1 else "one token"
    print(
        f"\n{last.prompt_tokens} prompt tokens in {last.timing_prompt_processing:.0f} ms, first text after "
        f"{(first - started) * 1000:.0f} ms, {last.tokens} tokens in {last.timing_token_generation:.0f} ms ({rate})",
        file=sys.stderr,
    )


def run(prompt: str, tokens: int) -> None:
    model = fetch("smollm2")
    backend = Backend()
    try:
        with step(f"starting ./run.sh --addr {backend.client.address}"):
            backend.wait_ready(sleep=0.05, attempts=800)
        with step(f"loading {model.name}"):
            backend.client.load(model)
        print(f"\n> {prompt}\n", flush=True)
        answer(backend.client, prompt, tokens)
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

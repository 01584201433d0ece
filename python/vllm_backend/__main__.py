"""python -m vllm_backend --addr HOST:PORT, as the host calls it, or python -m vllm_backend COMMAND ..."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys

from vllm_backend import parent
from vllm_backend.ending import PROGRAM, guarded

# Command: the module whose main(arguments) carries it out and gives the exit status.
COMMANDS = {
    "serve": "vllm_backend.serve",
    "doctor": "vllm_backend.doctor",
    "chat": "vllm_backend.terminal",
    "bench": "vllm_backend.measure",
    "selftest": "vllm_backend.selftest",
}


def serve(arguments: list[str]) -> int:
    """What the host starts: the gRPC server."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="LocalAI backend on libvllm",
        epilog=f"Instead of --addr there may be a command: {', '.join(COMMANDS)}.",
    )
    parser.add_argument("--addr", default="127.0.0.1:50051", metavar="HOST:PORT", help="address to serve on")
    if arguments and not arguments[0].startswith("-"):
        parser.error(f"there is no command {arguments[0]!r}; there are {', '.join(COMMANDS)}")
    address = parser.parse_args(arguments).addr
    parent.watch()
    from vllm_backend import server

    return server.run(address)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):  # paths may hold what a terminal cannot show
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    arguments = sys.argv[1:]
    if arguments and arguments[0] in COMMANDS:
        name, rest = arguments[0], arguments[1:]
        sys.exit(guarded(lambda: int(importlib.import_module(COMMANDS[name]).main(rest))))
    sys.exit(guarded(lambda: serve(arguments)))


if __name__ == "__main__":
    main()

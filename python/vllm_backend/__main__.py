"""python -m vllm_backend --addr HOST:PORT"""

from __future__ import annotations

import argparse
import os
import sys
import traceback

from vllm_backend import parent


def fail(sentence: str) -> None:
    """Ends the process; the host shows the last line of stderr to its users."""
    sys.stdout.flush()
    print(f"vllm_backend: {' '.join(sentence.split())}", file=sys.stderr, flush=True)
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="vllm_backend", description="LocalAI backend on libvllm")
    parser.add_argument("--addr", default="127.0.0.1:50051", metavar="HOST:PORT", help="address to serve on")
    address = parser.parse_args().addr
    parent.watch()
    try:
        from vllm_backend import server
    except ImportError as error:
        traceback.print_exc()
        fail(f"{error.name or 'a module'} cannot be imported ({error}); run install.sh")
        return
    try:
        server.run(address)
    except server.StartError as error:
        fail(str(error))
    except BaseException as error:
        traceback.print_exc()
        fail(f"the server ended: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()

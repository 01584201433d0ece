"""A model in this process, without the server: for the commands that a person runs in a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vllm_backend.ending import INTERRUPTED, StartError
from vllm_backend.errors import Status, engine_error
from vllm_backend.lifecycle import Loaded, LoadError, load_engine
from vllm_backend.native import Engine


def be_quiet() -> None:
    """Lets the library say nothing but warnings, unless the user chose a level."""
    os.environ.setdefault("VLLM_LOG_LEVEL", "warning")


@contextlib.contextmanager
def loaded(request: Any) -> Iterator[Loaded]:
    """The model of a ModelOptions message. Raises StartError."""
    # The interpreter handles Ctrl-C between two of its own steps; a load in this thread would be one long step.
    loading = ThreadPoolExecutor(1).submit(load_engine, request)
    try:
        model = loading.result()
        yield model
    except LoadError as error:
        raise StartError(f"the model cannot be loaded: {error}") from None
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # without waiting for what the library does
    model.engine.free()


def stream(engine: Engine, request: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
    """The chunks of a request of vllm_ext_submit as they come. A caller that stops reading cancels it.

    Raises BackendError when the request is refused or fails.
    """
    chunks: queue.SimpleQueue[tuple[bytes, bool]] = queue.SimpleQueue()
    handle = engine.submit(json.dumps(request).encode("ascii"), lambda chunk, last: chunks.put((chunk, last)))
    try:
        last = False
        while not last:
            chunk, last = chunks.get()
            if not chunk.strip():
                continue
            fields = json.loads(chunk.decode("utf-8", "replace"))
            error = fields.get("error")
            if error:
                raise engine_error(error.get("status", Status.UNKNOWN), error.get("message", ""))
            yield fields
    finally:
        handle.cancel()
        handle.free()

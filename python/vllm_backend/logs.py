"""Where log lines go and which are written.

VLLM_LOG_LEVEL (debug, info, warning or error) decides for this package and for the library; without it LocalAI's own
LOCALAI_LOG_LEVEL, or debug where its DEBUG is true, else info.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys

LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "fatal": "error",
}


def level() -> str:
    for name in ("VLLM_LOG_LEVEL", "LOCALAI_LOG_LEVEL"):
        word = LEVELS.get(os.environ.get(name, "").strip().lower())
        if word:
            return word
    return "debug" if os.environ.get("DEBUG", "").strip().lower() in ("true", "1") else "info"


def configure() -> None:
    """Warnings to stderr, the rest to stdout: the host shows the last line of stderr when a process dies."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    chosen = level()
    os.environ["VLLM_LOG_LEVEL"] = chosen  # for the library
    form = logging.Formatter("%(levelname)s %(message)s")
    out, err = logging.StreamHandler(sys.stdout), logging.StreamHandler(sys.stderr)
    out.addFilter(lambda record: record.levelno < logging.WARNING)
    err.setLevel(logging.WARNING)
    for handler in (out, err):
        handler.setFormatter(form)
    logging.basicConfig(level=logging.INFO, handlers=[out, err], force=True)
    logging.getLogger("vllm_backend").setLevel(chosen.upper())

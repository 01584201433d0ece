"""How the process ends before its time: one sentence in the last line of stderr, which the host shows its users."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

PROGRAM = "vllm_backend"
INTERRUPTED = 130  # status of a command that Ctrl-C ended
READER_GONE = 141  # of one whose reader, as head, had seen enough
INSTALLER = Path(__file__).resolve().parents[2] / "install.sh"  # a package has none


class StartError(Exception):
    """Why the process cannot do what it was started for; the text is one sentence."""


def fail(sentence: str) -> NoReturn:
    sys.stdout.flush()
    print(f"{PROGRAM}: {' '.join(sentence.split())}", file=sys.stderr, flush=True)
    os._exit(1)


def sentence_of(error: BaseException) -> str:
    if isinstance(error, StartError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"the process ran out of memory{f' ({error})' if str(error) else ''}"
    if isinstance(error, ImportError):
        advice = "run install.sh" if INSTALLER.exists() else "needed are libstdc++ and glibc 2.35 or newer"
        return f"{error.name or 'a module'} cannot be imported ({error}); {advice}"
    return f"the process ended: {type(error).__name__}: {error}"


def guarded(work: Callable[[], int]) -> int:
    """Runs the work. Whatever ends it, the last line of stderr says why; tracebacks come before it."""
    try:
        status = work()
        sys.stdout.flush()
        return status
    except SystemExit:
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os._exit(READER_GONE)  # what is left to write has nobody to read it
    except BaseException as error:
        if not isinstance(error, StartError):
            traceback.print_exc()
        fail(sentence_of(error))

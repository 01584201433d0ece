"""Ends the process when the one that started it is gone, so that a host that dies leaves no model in memory.

LOCALAI_BACKEND_PARENT_WATCH turns it off with false, 0, no or off; LOCALAI_BACKEND_PARENT_WATCH_INTERVAL is the time
between two looks, in seconds or as 500ms, 2s, 1m.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time

DEFAULT_INTERVAL_S = 2.0
SHORTEST_INTERVAL_S = 0.05
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def interval_s(source: str) -> float:
    """Seconds of a number or of a duration as Go writes it; the default where it is neither."""
    source = source.strip()
    try:
        seconds = float(source)
    except ValueError:
        parts = re.findall(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", source)
        if not parts or "".join(number + unit for number, unit in parts) != source:
            return DEFAULT_INTERVAL_S
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if not 0 < seconds < 86400:
        return DEFAULT_INTERVAL_S
    return max(seconds, SHORTEST_INTERVAL_S)


def watch() -> None:
    """Starts the watching thread, unless it is turned off or there is no parent to watch."""
    if os.environ.get("LOCALAI_BACKEND_PARENT_WATCH", "").strip().lower() in ("false", "0", "no", "off"):
        return
    parent = os.getppid()
    if parent <= 1:
        return
    pause = interval_s(os.environ.get("LOCALAI_BACKEND_PARENT_WATCH_INTERVAL", ""))

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(pause)
        print(f"the parent process {parent} is gone, so the backend ends", file=sys.stderr, flush=True)
        os._exit(1)

    threading.Thread(target=look, name="parent-watch", daemon=True).start()

"""JSON from outside: strict, and too deep or broken text is a ValueError that says so."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_SHOWN = 80  # characters of a value shown in a message
TOO_DEEP = "it is nested too deeply"


def parse_json(source: str) -> Any:
    def refuse(word: str) -> float:
        raise ValueError(f"{word} is no JSON number")

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise ValueError("a number is out of range")
        return number

    try:
        return json.loads(source, parse_constant=refuse, parse_float=finite)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def to_json(value: Any) -> str:
    """ASCII only, so that nothing in a value can break an encoding on the way."""
    try:
        return json.dumps(value, allow_nan=False)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def shown(value: object) -> str:
    """A value as messages show it: short, and quoted where it is a text."""
    if isinstance(value, str):
        text = repr(value)
    else:
        try:
            text = json.dumps(value, default=str)
        except (RecursionError, ValueError):
            text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."

"""Conversations that real chat templates are rendered with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Wetter für eine Stadt <jetzt> & "hier"',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. 東京"},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 1},
                "threshold": {"type": "number", "default": 0.5},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "id": "chatcmpl-tool-1", "function": {"name": name, "arguments": arguments}}


SYSTEMS: list[list[dict[str, Any]]] = [
    [],
    [{"role": "system", "content": "You are terse."}],
    [{"role": "system", "content": ""}],
    [{"role": "system", "content": "  spaces \n\nand lines\n"}],
]

TURNS: list[list[dict[str, Any]]] = [
    [user("Hi")],
    [user("Grüße 😀\n{{ not a template }} {% if %}")],
    [user("Hi"), assistant("Hello!"), user("Bye")],
    [user("Hi"), assistant("<think>\nhm\n</think>\n\nHello!"), user("Bye")],
    [user("Hi"), assistant("Hello!", reasoning_content="They greet.\n"), user("Bye")],
    [user("Hi"), assistant("Hello!", reasoning_content="They greet.")],
    [user("Hi"), assistant("</think>odd"), user("<tool_response>x</tool_response>")],
    [user("Hi"), assistant("a", reasoning_content=""), {"role": "system", "content": "midway"}, user("b")],
    [
        user("Weather?"),
        assistant("", tool_calls=[call("get_weather", city="Köln", days=2)]),
        {"role": "tool", "content": '{"temp": 21.5}', "tool_call_id": "chatcmpl-tool-1"},
    ],
    [
        user("Weather and time?"),
        assistant(
            "Let me look.",
            reasoning_content="Two calls.",
            tool_calls=[call("get_weather", city="東京", unit="C", nested={"a": [1, None, True, 2.0]}), call("now")],
        ),
        {"role": "tool", "content": "sunny"},
        {"role": "tool", "content": "12:00"},
        assistant("It is sunny at noon."),
        user("Thanks"),
    ],
    [
        user("Go"),
        assistant("", tool_calls=[{"type": "function", "function": {"name": "now", "arguments": '{"raw": "text"}'}}]),
        {"role": "tool", "content": ""},
        assistant("", tool_calls=[{"name": "flat", "arguments": {}}], reasoning_content="\nagain\n"),
        {"role": "tool", "content": "x"},
        user("more"),
    ],
    [message for i in range(10) for message in (user(f"question {i} " * 5), assistant(f"answer {i}\n" * 3))]
    + [user("last")],
]


def conversations() -> Iterator[dict[str, Any]]:
    """Variables of a render, as the chat protocol passes them."""
    for system, turns in itertools.product(SYSTEMS, TURNS):
        base = {"messages": system + turns, "bos_token": "<s>", "eos_token": "</s>"}
        yield {**base, "add_generation_prompt": True, "tools": None}
        if len(turns) < 4 or system:
            yield {**base, "add_generation_prompt": True, "tools": [WEATHER, NOW], "enable_thinking": False}
        if not system:
            yield {**base, "add_generation_prompt": False, "tools": [NOW], "enable_thinking": True}

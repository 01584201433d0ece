"""Our interpreter of chat templates against jinja2, on random expressions and templates, and on whole chats.

Drives jinja_tool of the native build: `cmake -S . -B build -G Ninja && ninja -C build jinja_tool`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja_oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja_chat_templates import CHATS
from jinja_conversations import conversations
from jinja_random import CONTEXT, Generator, comparable

TOOL = Path(__file__).resolve().parents[2] / "build" / "tests" / "native" / "jinja_tool"

Render = Callable[..., dict[str, str]]  # of a template and, where it is not CONTEXT, what it is rendered with


@pytest.fixture(scope="module")
def render() -> Iterator[Render]:
    """What the interpreter makes of a template."""
    assert TOOL.is_file(), f"{TOOL} is missing: build the target jinja_tool first"
    with subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdin
        assert process.stdout

        def ask(template: str, context: dict[str, Any] = CONTEXT) -> dict[str, str]:
            process.stdin.write(json.dumps({"template": template, "context": context}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, f"the interpreter died with code {process.wait()}"
            return json.loads(answer)

        yield ask
        process.stdin.close()
        assert process.wait() == 0


def check(template: str, got: dict[str, str]) -> None:
    want = jinja_oracle.render(template, CONTEXT)
    if not comparable(want, got):
        return
    if "text" in want:
        assert got.get("text") == want["text"], (template, got, want)
    elif "raised" in want:
        assert got.get("error") == want["raised"], (template, got, want)
    else:
        assert "error" in got, (template, got, want)


@pytest.mark.parametrize("name", CHATS)
def test_TPL_01_whole_chats(render: Render, name: str) -> None:
    texts = 0
    for context in conversations():
        want, got = jinja_oracle.render(CHATS[name], context), render(CHATS[name], context)
        assert "error" not in want, want
        if "text" in want:
            texts += 1
            assert got.get("text") == want["text"]
        else:
            assert got.get("error") == want["raised"]
    assert texts > 90


def pick_from(choices: bytes) -> Callable[[int], int]:
    rest = iter(choices)
    return lambda below: next(rest, 0) % below


SETTINGS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
TOKENS = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "-",
    "+",
    "if",
    "for",
    "x",
    "in",
    "endif",
    "endfor",
    "raw",
    "endraw",
    "set",
    "=",
    "1",
    "'a'",
    "|",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    "é",
]
TOKENS += [" ", "\n", "\r\n", "\t"]


@settings(SETTINGS, max_examples=1000)
@given(st.binary(min_size=20, max_size=60))
def test_random_expressions(render: Render, choices: bytes) -> None:
    template = "{{ " + Generator(pick_from(choices)).expression(3) + " }}"
    check(template, render(template))


@settings(SETTINGS, max_examples=400)
@given(st.binary(min_size=50, max_size=300))
def test_random_templates(render: Render, choices: bytes) -> None:
    template = Generator(pick_from(choices)).statements(3)
    check(template, render(template))


@settings(SETTINGS, max_examples=600)
@given(st.lists(st.sampled_from(TOKENS), max_size=14))
def test_random_tokens(render: Render, tokens: list[str]) -> None:
    template = "".join(tokens)
    check(template, render(template))

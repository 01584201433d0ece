#!/usr/bin/env python3
"""Measures constraints beside llguidance and chat templates beside jinja2, in alternating runs.

    python bench/text.py [--runs N]

Constraints: an object schema of a usual kind over Qwen3's vocabulary; compiling it, and the mask in front of each token
of an answer, the first time and when the same grammar has been followed before. Templates: Qwen3's over a conversation
with tools, and SmolLM2's over a plain one. Printed are medians of the runs' means in microseconds; a ratio above 1 is
in our favour. Needs constrain_tool and jinja_tool of the native build (folder `build`, or $VLLM_BUILD).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tools"))
import jinja_oracle  # noqa: E402
import llguidance  # noqa: E402
import llguidance.numpy  # noqa: E402
from constraint_oracle import Tool  # noqa: E402
from jinja_conversations import NOW, WEATHER, assistant, call, user  # noqa: E402
from models import FetchError, fetch  # noqa: E402
from run import BUSY, busy_share  # noqa: E402

PROPERTIES = {
    "name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "email": {"type": "string"},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
    "address": {
        "type": "object",
        "properties": {"street": {"type": "string"}, "city": {"type": "string", "maxLength": 40}},
        "required": ["street", "city"],
        "additionalProperties": False,
    },
    "role": {"enum": ["admin", "user", "guest"]},
    "score": {"type": "number"},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": list(PROPERTIES), "additionalProperties": False}
ANSWER = (
    '{"name": "Grace Brewster Murray Hopper", "age": 85, "email": "grace@navy.example.org", "tags": ["computer '
    'scientist", "mathematician", "rear admiral"], "address": {"street": "1906 Nanosecond Avenue, Building 4", '
    '"city": "Arlington, Virginia"}, "role": "admin", "score": 97.25}'
)

CHAT = [user("How far is the moon?"), assistant("About 384,400 km, a little over one light second.")] * 6
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "Qwen3, tools": {
        "messages": [
            {"role": "system", "content": "You are terse."},
            *CHAT,
            user("Weather in Köln and the time?"),
            assistant("", tool_calls=[call("get_weather", city="Köln", days=2), call("now")]),
            {"role": "tool", "content": '{"temp": 21.5}'},
            {"role": "tool", "content": "12:00"},
            assistant("21.5 degrees at noon.", reasoning_content="Both have answered."),
            user("Thanks"),
        ],
        "tools": [WEATHER, NOW],
        "add_generation_prompt": True,
    },
    "SmolLM2, plain": {"messages": [*CHAT, user("Thanks")], "tools": None, "add_generation_prompt": True},
}

Figures = dict[str, float]  # microseconds
COMPILE, FIRST, AGAIN = "compile the schema", "mask, first time", "mask, again"
TARGETS = {COMPILE: 50_000, FIRST: 100, AGAIN: 100}


class BenchError(Exception):
    """One sentence."""


def microseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def our_constraint(vocabulary: Path, ids: list[int]) -> Figures:
    """In a process of its own, so that nothing is known."""
    with Tool(vocabulary) as tool:
        figures = {COMPILE: tool.ask(compile={"kind": "json", "text": json.dumps(SCHEMA)})["us"]}
        for label in (FIRST, AGAIN):
            times = []
            for id in ids:
                times.append(tool.mask()[2])
                if tool.ask(accept=[id])["accepted"] != 1:
                    raise BenchError("the measured answer does not fit its schema")
            figures[label] = statistics.fmean(times)
            tool.ask(rollback=len(ids))
    return figures


def their_constraint(tokenizer: llguidance.LLTokenizer, ids: list[int]) -> Figures:
    def compiled() -> llguidance.LLMatcher:
        return llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA)))

    figures = {COMPILE: microseconds(compiled)}
    matcher = compiled()
    row = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    for label in (FIRST, AGAIN):
        times = []
        for id in ids:
            times.append(microseconds(lambda: llguidance.numpy.fill_next_token_bitmask(matcher, row)))
            if not matcher.consume_token(id):
                raise BenchError("llguidance does not take the measured answer")
        figures[label] = statistics.fmean(times)
        matcher.reset()
    return figures


class Templates:
    """A running jinja_tool."""

    def __init__(self, repeat: int):
        program = Path(os.environ.get("VLLM_BUILD", REPOSITORY / "build")) / "tests/native/jinja_tool"
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        self._repeat = repeat

    def ours(self, template: str, context: dict[str, Any]) -> tuple[str, float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"template": template, "context": context, "repeat": self._repeat}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise BenchError(f"our interpreter refuses a template: {answer['error']}")
        return answer["text"], answer["microseconds"]

    def theirs(self, template: str, context: dict[str, Any]) -> tuple[str, float]:
        compiled = jinja_oracle.ENVIRONMENT.from_string(template)
        text = compiled.render(context)
        took = microseconds(lambda: [compiled.render(context) for _ in range(self._repeat)])
        return text, took / self._repeat

    def close(self) -> None:
        self._process.communicate()


def measure(runs: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    folder = fetch("qwen3-tokenizer")
    tokenizer = llguidance.LLTokenizer((folder / "tokenizer.json").read_text("utf-8"))
    ids = tokenizer.tokenize_str(ANSWER)
    fixtures = REPOSITORY / "tests" / "fixtures" / "jinja"
    sources = {
        name: json.loads((fixtures / f"{name.split(',')[0].lower()}.json").read_text("utf-8"))["template"]
        for name in CONVERSATIONS
    }
    ours: dict[str, list[float]] = defaultdict(list)
    theirs: dict[str, list[float]] = defaultdict(list)
    templates = Templates(repeat=200)
    print(f"{tokenizer.vocab_size} tokens in the vocabulary, {len(ids)} masks a run", file=sys.stderr)
    for _ in range(runs):
        for side, figures in ((ours, our_constraint(folder, ids)), (theirs, their_constraint(tokenizer, ids))):
            for label, value in figures.items():
                side[label].append(value)
        for name, context in CONVERSATIONS.items():
            text, our_time = templates.ours(sources[name], context)
            their_text, their_time = templates.theirs(sources[name], context)
            if text != their_text:
                raise BenchError(f"{name}: the two render different texts")
            ours[f"render {name}"].append(our_time)
            theirs[f"render {name}"].append(their_time)
    templates.close()
    return ours, theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    try:
        shares = [busy_share()]
        ours, theirs = measure(arguments.runs)
        shares.append(busy_share())
    except (BenchError, FetchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"medians of {arguments.runs} alternating runs, microseconds (lowest-highest)")
    print(f"{'':24}{'ours':>26}{'llguidance or jinja2':>26}   ratio  target")
    for label in ours:
        cells = ""
        for values in (ours[label], theirs[label]):
            cells += f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})".rjust(26)
        ratio = statistics.median(theirs[label]) / statistics.median(ours[label])
        target = f"  < {TARGETS[label]}" if label in TARGETS else ""
        print(f"{label:24}{cells}{ratio:8.2f}{target}")
    if max(shares) > BUSY:
        print(f"other processes used {max(shares):.0%} of this machine: measure again before believing this")
    return 0


if __name__ == "__main__":
    sys.exit(main())

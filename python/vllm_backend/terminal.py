"""python -m vllm_backend chat MODEL: a conversation with a model in the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from vllm_backend import command_line, direct
from vllm_backend.errors import BackendError
from vllm_backend.native import Engine

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
HELP = "/quit leaves, /clear forgets the conversation, Ctrl-C stops an answer"


class Screen:
    """Writes content plainly, and thoughts and notes dimmed where the terminal can."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._colours = out.isatty() and not os.environ.get("NO_COLOR")
        self._dimmed = False

    def write(self, text: str, dim: bool = False) -> None:
        if self._colours and dim != self._dimmed:
            self._out.write(DIM if dim else PLAIN)
            self._dimmed = dim
        self._out.write(text)
        self._out.flush()

    def note(self, text: str) -> None:
        self.write(text, dim=True)
        self.write("\n")


def timing(chunk: dict[str, Any]) -> str:
    """The line under an answer, from the counts of its last chunk."""
    usage, times = chunk.get("usage") or {}, chunk.get("timings") or {}
    tokens, spent = int(usage.get("completion_tokens") or 0), float(times.get("generation_ms") or 0)
    rate = f"{1e3 * (tokens - 1) / spent:.1f} tokens/s" if tokens > 1 and spent > 0 else "no rate"
    cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    first = float(times.get("queue_ms") or 0) + float(times.get("prompt_ms") or 0)
    return (
        f"[{tokens} tokens, {rate}, first token after {first:.0f} ms, "
        f"prompt {int(usage.get('prompt_tokens') or 0)} tokens ({cached} cached)]"
    )


def show(chunks: Iterable[dict[str, Any]], screen: Screen) -> str:
    """Shows an answer while it comes, then its counts. The content, also of one that Ctrl-C cut short."""
    content, last, thinking, stopped = "", {}, False, False
    try:
        for chunk in chunks:
            last = chunk
            delta = (chunk.get("choices") or [{}])[0].get("delta") or {}
            thought, text = delta.get("reasoning") or "", delta.get("content") or ""
            if thought:
                screen.write(thought, dim=True)
                thinking = True
            if text:
                screen.write("\n\n" if thinking and not content else "")
                screen.write(text)
                content += text
            for call in delta.get("tool_calls") or []:
                function = call.get("function") or {}
                screen.write(f"{function.get('name') or ''}{function.get('arguments') or ''}", dim=True)
    except KeyboardInterrupt:
        stopped = True
    screen.write("\n")
    if last:
        screen.note(timing(last) + (" stopped" if stopped else ""))
    return content


def converse(engine: Engine, fields: dict[str, Any], system: str, screen: Screen, terminal: bool) -> None:
    first = [{"role": "system", "content": system}] if system else []
    messages = list(first)
    while True:
        try:
            said = input("> " if terminal else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            screen.note(f"\n{HELP}")
            continue
        if said == "/quit":
            return
        if said == "/clear":
            messages = list(first)
        elif said.startswith("/"):
            screen.note(HELP)
        elif said:
            messages.append({"role": "user", "content": said})
            chunks = direct.stream(engine, {"messages": messages, **fields})
            try:
                with contextlib.closing(chunks):
                    answer = show(chunks, screen)
            except BackendError as error:
                screen.note(f"the request was refused: {error}")
                messages.pop()
            else:
                messages.append({"role": "assistant", "content": answer})


def main(arguments: list[str]) -> int:
    parser = command_line.parser_for("chat", f"Talks to a model: {HELP}.", model_needed=True)
    parser.add_argument("--system", default="", metavar="TEXT", help="the system message")
    parser.add_argument("--temperature", type=float, default=0.7, metavar="T", help="0: always the likeliest token")
    parser.add_argument("--tokens", type=int, metavar="N", help="longest answer, in tokens")
    parser.add_argument("--seed", type=int, metavar="N", help="makes sampled answers repeatable")
    parser.add_argument("--no-think", action="store_true", help="ask the template for an answer without a thought")
    parsed = parser.parse_args(arguments)
    request = command_line.needed_model(parsed, parser)
    fields: dict[str, Any] = {"temperature": parsed.temperature}
    if parsed.tokens is not None:
        fields["max_tokens"] = parsed.tokens
    if parsed.seed is not None:
        fields["seed"] = parsed.seed
    if parsed.no_think:
        fields["chat_template_kwargs"] = {"enable_thinking": False}
    direct.be_quiet()
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(errors="replace")  # type: ignore[attr-defined,union-attr,unused-ignore]
    screen = Screen(sys.stdout)
    terminal = sys.stdin.isatty()
    if terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (line editing of input())
        screen.note(f"loading {request.ModelFile} ...")
    with direct.loaded(request) as model:
        if terminal:
            screen.note(f"{model.facts['architecture']}, {model.facts['device']}; {HELP}")
        converse(model.engine, fields, parsed.system, screen, terminal)
    return 0

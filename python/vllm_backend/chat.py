"""PredictOptions with messages to the chat form of a request: OpenAI's chat-completions object."""

from __future__ import annotations

import functools
import logging
from typing import Any

from vllm_backend import sampling
from vllm_backend.errors import invalid_argument
from vllm_backend.strict_json import parse_json, shown, to_json

log = logging.getLogger(__name__)


def is_chat(request: Any) -> bool:
    """A completion may carry the flag too, without messages and with a prompt."""
    return bool(request.UseTokenizerTemplate) and len(request.Messages) > 0


def message(wire: Any, index: int) -> dict[str, Any]:
    """One message; what was not sent stays undefined for the template."""
    fields: dict[str, Any] = {"role": wire.role, "content": wire.content}
    for name, value in (
        ("name", wire.name),
        ("tool_call_id", wire.tool_call_id),
        ("reasoning", wire.reasoning_content),
    ):
        if value:
            fields[name] = value
    if wire.tool_calls.strip():
        fields["tool_calls"] = json_list(wire.tool_calls, f"tool_calls of message {index}")
    return fields


def json_list(source: str, name: str) -> list[Any]:
    try:
        items = parse_json(source)
    except ValueError as error:
        raise invalid_argument(f"{name} is not JSON: {error}") from None
    if not isinstance(items, list):
        raise invalid_argument(f"{name} is {shown(items)}; it must be a JSON list")
    return items


def tool_choice(source: str) -> str | dict[str, Any] | None:
    """The choice in one shape: a word, or {"type": "function", "function": {"name"}}.

    The wire has it as JSON, as a bare word, as the older {"type", "name"}, or as a JSON text of one of these.
    """
    choice: Any = source.strip()
    for _ in range(3):
        if not isinstance(choice, str) or choice in ("", "auto", "none", "required"):
            break
        try:
            choice = parse_json(choice)
        except ValueError:
            break
    if choice in ("", None):
        return None
    if choice in ("auto", "none", "required"):
        return str(choice)
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if isinstance(name, str) and name:
            return {"type": "function", "function": {"name": name}}
    raise invalid_argument(f"ToolChoice is {shown(source)}; it must be auto, none, required or a function with a name")


def template_kwargs(metadata: Any) -> dict[str, Any]:
    """What the template gets beside messages and tools. Clients can write this text: only an object counts."""
    kwargs: dict[str, Any] = {}
    try:
        given = parse_json(metadata.get("chat_template_kwargs", "") or "{}")
    except ValueError:
        given = None
    if isinstance(given, dict):
        kwargs.update(given)
    if "enable_thinking" not in kwargs and metadata.get("enable_thinking", "") != "":
        kwargs["enable_thinking"] = metadata["enable_thinking"]
    if "reasoning_effort" not in kwargs and metadata.get("reasoning_effort", "") != "":
        kwargs["reasoning_effort"] = metadata["reasoning_effort"]
    word = kwargs.get("enable_thinking")
    if isinstance(word, str) and word.lower() in ("true", "false"):
        kwargs["enable_thinking"] = word.lower() == "true"
    return kwargs


def thinking_budget(metadata: Any) -> int | None:
    """How many tokens the thoughts may take; None: as many as they like."""
    word = metadata.get("thinking_budget", "").strip()
    if not word:
        return None
    if not (word.isascii() and word.isdigit() and len(word) <= 10):
        raise invalid_argument(f"Metadata has the thinking_budget {shown(word)}; it must be an integer of at least 0")
    return int(word)


def stems_from_tools(grammar: str, tools: list[Any], choice: str | dict[str, Any] | None) -> bool:
    """Whether the host made this grammar from the tools that may be called.

    It then spells the name of each as a JSON text.
    """
    if isinstance(choice, dict):
        names = [choice["function"]["name"]]
    else:
        functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
        names = [function.get("name") for function in functions if isinstance(function, dict)]
    return bool(names) and all(isinstance(name, str) and f'\\"{name}\\"' in grammar for name in names)


@functools.cache
def warn_of_dropped_grammar() -> None:
    """Once: hosts send both with every request."""
    log.warning("Grammar is dropped where ToolChoice asks for a tool call: the engine enforces the call's own form")


def yield_to_calls(keys: dict[str, Any], tools: list[Any], choice: str | dict[str, Any] | None) -> None:
    """Drops a constraint of the host that would contradict the engine's own one for tool calls.

    That is one made from the tools, and any where a call must be made.
    """
    if not tools or choice == "none":
        return
    if stems_from_tools(keys.get("grammar", ""), tools, choice):
        del keys["grammar"]
    elif choice not in (None, "auto"):
        for name in ("grammar", "json_schema"):
            if keys.pop(name, None) is not None:
                warn_of_dropped_grammar()


def chat(request: Any) -> dict[str, Any]:
    """The `messages` form of a request."""
    keys: dict[str, Any] = {
        "messages": [message(wire, index) for index, wire in enumerate(request.Messages)],
        **sampling.sampling(request),
    }
    tools = json_list(request.Tools, "Tools") if request.Tools.strip() else []
    choice = tool_choice(request.ToolChoice)
    if tools:
        keys["tools"] = tools
    if choice is not None and (tools or choice not in ("auto", "none")):
        keys["tool_choice"] = choice
    yield_to_calls(keys, tools, choice)
    if sampling.alternatives(request):
        keys["logprobs"] = True
        keys["top_logprobs"] = sampling.alternatives(request)
    kwargs = template_kwargs(request.Metadata)
    if kwargs:
        keys["chat_template_kwargs"] = kwargs
    budget = thinking_budget(request.Metadata)
    if budget is not None:
        keys["thinking_budget"] = budget
    return keys


def request_json(request: Any) -> bytes:
    """The request that PredictOptions describes, in whichever form it asks for."""
    sampling.refuse_media(request)
    keys = chat(request) if is_chat(request) else sampling.completion(request)
    try:
        return to_json(keys).encode("ascii")
    except ValueError as error:
        raise invalid_argument(f"the request cannot be handed on: {error}") from None

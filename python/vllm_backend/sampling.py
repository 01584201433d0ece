"""PredictOptions to the sampling part of a request of vllm_ext_submit, alike for both forms of request.

The wire cannot tell "unset" from 0: top_k up to 0, top_p 0, the penalties at 0 and Tokens 0 are unset, seed -1 is
unseeded and every other value is a seed.
"""

from __future__ import annotations

import math
from typing import Any

from vllm_backend.errors import invalid_argument
from vllm_backend.strict_json import parse_json, shown

UNBOUNDED = math.inf
MAX_TOKEN_ID = 2**31 - 1

# Wire field, engine key, lowest and highest value, and the value that means unset (None: always sent).
NUMBERS: tuple[tuple[str, str, float, float, float | None], ...] = (
    ("Temperature", "temperature", 0.0, UNBOUNDED, None),
    ("TopP", "top_p", 0.0, 1.0, 0.0),
    ("MinP", "min_p", 0.0, 1.0, 0.0),
    ("PresencePenalty", "presence_penalty", -UNBOUNDED, UNBOUNDED, 0.0),
    ("FrequencyPenalty", "frequency_penalty", -UNBOUNDED, UNBOUNDED, 0.0),
    ("Penalty", "repetition_penalty", 0.0, UNBOUNDED, 0.0),
)

# Media would change the meaning of a prompt; the rest is only said.
MEDIA = ("Images", "Videos", "Audios")
IGNORED: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("Mirostat", (0,)),
    ("TypicalP", (0.0, 1.0)),
    ("TailFreeSamplingZ", (0.0, 1.0)),
    ("NegativePrompt", ("",)),
    ("PromptCachePath", ("",)),
)


def single(value: float) -> float:
    """A 32-bit float of the wire as the shortest decimal that means it, so 0.3 stays 0.3."""
    return float(f"{value:.7g}")


def refuse_media(request: Any) -> None:
    for name in MEDIA:
        count = len(getattr(request, name))
        if count:
            raise invalid_argument(f"{name} holds {count} item(s), and this model takes text only")


def ignored_fields(request: Any) -> list[str]:
    """Fields that are set and have no effect."""
    return [name for name, unset in IGNORED if getattr(request, name) not in unset]


def logit_bias(source: str) -> dict[str, float]:
    """The wire's JSON object of token id to bias."""
    try:
        biases = parse_json(source)
    except ValueError as error:
        raise invalid_argument(f"LogitBias is not JSON: {error}") from None
    if not isinstance(biases, dict):
        raise invalid_argument(f"LogitBias is {shown(biases)}; it must be an object of token id to number")
    for key, value in biases.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= MAX_TOKEN_ID):
            raise invalid_argument(f"LogitBias has the key {shown(key)}; a key must be a token id")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e30:
            raise invalid_argument(f"LogitBias gives token {key} the value {shown(value)}; it must be a number")
    return biases


def constraint(grammar: str) -> dict[str, Any]:
    """Grammar is GBNF, or a JSON Schema where it is a JSON object."""
    if grammar.lstrip().startswith("{"):
        try:
            schema = parse_json(grammar)
        except ValueError:
            schema = None
        if isinstance(schema, dict):
            return {"json_schema": schema}
    return {"grammar": grammar}


def sampling(request: Any) -> dict[str, Any]:
    """The sampling keys of a request; raises INVALID_ARGUMENT naming the field."""
    keys: dict[str, Any] = {}
    for name, key, low, high, unset in NUMBERS:
        value = getattr(request, name)
        if not math.isfinite(value) or not low <= value <= high:
            limits = f"from {low:g}" + ("" if high == UNBOUNDED else f" to {high:g}")
            needed = "a finite number" if low == -UNBOUNDED else f"a number {limits}"
            raise invalid_argument(f"{name} is {value:g}; it must be {needed}")
        if unset is None or value != unset:
            keys[key] = single(value)
    if request.TopK > 0:
        keys["top_k"] = request.TopK
    keys["max_tokens"] = max(request.Tokens, 0)
    if request.Seed != -1:
        keys["seed"] = request.Seed
    stops = [stop for stop in request.StopPrompts if stop]
    if stops:
        keys["stop"] = stops
    if request.IgnoreEOS:
        keys["ignore_eos"] = True
    if request.LogitBias.strip():
        keys["logit_bias"] = logit_bias(request.LogitBias)
    if request.Grammar.strip():
        keys.update(constraint(request.Grammar))
    return keys


def alternatives(request: Any) -> int:
    """How many alternatives each token's log-probability comes with; 0: none are asked for."""
    return max(int(request.Logprobs), int(request.TopLogprobs), 0)


def completion(request: Any) -> dict[str, Any]:
    """The `prompt` form of a request."""
    keys: dict[str, Any] = {"prompt": request.Prompt, **sampling(request)}
    if alternatives(request):
        keys["logprobs"] = alternatives(request)
    return keys

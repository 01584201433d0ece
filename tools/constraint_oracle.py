"""Walks random texts that our grammar engine and llguidance both follow, and compares the tokens they allow."""

from __future__ import annotations

import base64
import copy
import json
import os
import random
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import jsonschema
import llguidance
import numpy as np
from llguidance import TokenizerWrapper
from llguidance.gbnf_to_lark import gbnf_to_lark
from vocabularies import Vocabulary

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests/fixtures/constrain/cases.json"


class Tool:
    """A running constrain_tool."""

    def __init__(self, vocabulary: Path):
        program = Path(os.environ.get("VLLM_BUILD", ROOT / "build")) / "tests/native/constrain_tool"
        if not program.exists():
            raise FileNotFoundError(f"{program} is missing: build the native tests first")
        self.process = subprocess.Popen(
            [program, vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.header = self._line()
        self.vocab_size: int = self.header["vocab_size"]

    def __enter__(self) -> Tool:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    def _line(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"constrain_tool ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, **request: object) -> dict:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._line()

    def mask(self) -> tuple[np.ndarray, bool, float]:
        """Allowed tokens as booleans, whether the text may end, microseconds."""
        answer = self.ask(mask=True)
        return to_bools(base64.b64decode(answer["mask"]), self.vocab_size), answer["can_end"], answer["us"]


def to_bools(mask: bytes, count: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[:count].astype(bool)


class ListedTokens:
    """A vocabulary as llguidance wants it; encodes greedily. Bytes that no token spells are left out."""

    def __init__(self, vocabulary: Vocabulary, eos: int):
        self.eos_token_id = eos
        self.bos_token_id = None
        self.tokens = vocabulary.tokens
        self.special_token_ids = vocabulary.controls
        controls = set(vocabulary.controls)
        self.ids = {token: id for id, token in enumerate(self.tokens) if id not in controls}
        self.longest = max(map(len, self.ids))

    def __call__(self, text: bytes) -> list[int]:
        ids = []
        while text:
            size = next((n for n in range(min(len(text), self.longest), 0, -1) if text[:n] in self.ids), 0)
            if size:
                ids.append(self.ids[text[:size]])
            text = text[max(size, 1) :]
        return ids


def listed_tokenizer(vocabulary: Vocabulary, eos: int) -> llguidance.LLTokenizer:
    """Made of a real tokenizer, llguidance's would allow only its own splitting of forced text; a list has none."""
    return llguidance.LLTokenizer(TokenizerWrapper(ListedTokens(vocabulary, eos)))


def ascii_classes(pattern: str) -> str:
    """Our \\d, \\w and \\s are ASCII, those of llguidance are Unicode."""
    inside = {"d": "0-9", "w": "0-9A-Za-z_", "s": "\\t-\\r "}
    out, in_class, i = "", False, 0
    while i < len(pattern):
        two = pattern[i : i + 2]
        if two[0] == "\\" and len(two) == 2:
            name = two[1]
            if name.lower() in inside:
                body = inside[name.lower()]
                out += body if in_class else f"[{'^' if name.isupper() else ''}{body}]"
            else:
                out += two
            i += 2
            continue
        if two[0] == "[" and not in_class:
            in_class = True
        elif two[0] == "]":
            in_class = False
        out += two[0]
        i += 1
    return out


def closed(schema: object) -> object:
    """The schema with our rule that an object with `properties` is closed, spelt out."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        if key in ("enum", "const"):
            result[key] = value
        elif key in ("properties", "$defs", "definitions"):
            result[key] = {name: closed(item) for name, item in value.items()}
        else:
            result[key] = closed(value)
    if "properties" in schema and "additionalProperties" not in schema:
        result["additionalProperties"] = False
    if "pattern" in schema:
        result["pattern"] = ascii_classes(schema["pattern"])
    return result


def open_all_of(schema: object) -> object:
    """Where allOf joins schemas, closing each by itself would exclude the others' properties."""
    if not isinstance(schema, dict) or "allOf" not in schema:
        return schema
    schema = copy.deepcopy(schema)
    merged: dict = {"type": "object", "properties": {}, "required": []}
    for part in schema["allOf"]:
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rsplit("/", 1)[1]]
        merged["properties"].update(part["properties"])
        merged["required"] += part["required"]
    return merged


@dataclass
class Case:
    kind: str  # json, regex, gbnf
    text: str

    def request(self) -> dict:
        return {"kind": self.kind, "text": self.text, "compact": True}

    def oracle_grammar(self) -> str:
        if self.kind == "regex":
            return llguidance.LLMatcher.grammar_from_regex(ascii_classes(self.text.removeprefix("^").removesuffix("$")))
        if self.kind == "gbnf":
            return llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(self.text))
        schema = closed(open_all_of(json.loads(self.text)))
        options = {
            "whitespace_flexible": False,
            "item_separator": ",",
            "key_separator": ":",
            "coerce_one_of": True,
        }
        return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)


def load_cases() -> list[Case]:
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    return (
        [Case("json", json.dumps(schema)) for schema in cases["schemas"]]
        + [Case("regex", pattern) for pattern in cases["regexes"]]
        + [Case("gbnf", grammar) for grammar in cases["grammars"]]
    )


# Cases that llguidance itself cannot read.
REFUSED_THERE = ["true", 'root ::= "\\x41\\u00e9\\U0001F389"']

ESCAPE = rb"\\u[0-9a-fA-F]{0,4}"
# White space is no choice among these: request() and oracle_grammar() ask both sides for compact JSON.
# What a text must hold where it differs, whether it is ours, what the case must hold, and the documented choice.
CHOICES: list[tuple[bytes, bool, str, str]] = [
    (rb"\x7f", True, "", "a string may hold U+007F as it is (RFC 8259)"),
    (rb"\\/", True, "", "a slash may be escaped (RFC 8259)"),
    (ESCAPE, True, "", "any character may be escaped as \\uXXXX (RFC 8259)"),
    (rb"\\u[dD]([89a-fA-F][0-9a-fA-F]{0,2}.{0,6})?", False, "", "an escaped surrogate needs its other half"),
    (
        ESCAPE,
        False,
        "pattern|additionalProperties|enum",
        "extra keys, enum values and strings with a pattern are spelt without needless escapes",
    ),
    (rb"\.", True, '"ipv6"', "the last two groups of an IPv6 address may be an IPv4 address (RFC 4291)"),
    (rb"-0", False, "inimum|aximum", "there is no negative zero between bounds"),
    (
        rb"[@.]([^@.]{64}|[^@.]{62}-)",
        False,
        '"email"',
        "a part of a host's name has at most 63 characters, the last one no hyphen (RFC 1034)",
    ),
    (rb"@\[", False, '"email"', "an email's host is a name, not an address in brackets"),
]


def explain(case: Case, before: bytes, token: bytes, ours: bool) -> str | None:
    """The documented choice behind a token that only one side takes after `before`, None when there is none."""
    if case.kind != "json":
        return None
    for pattern, who, needed, choice in CHOICES:
        if ours is who and re.search(needed, case.text):
            found = re.finditer(pattern, before + token, re.DOTALL)
            if any(match.end() > len(before) for match in found):
                return choice
    return None


@dataclass
class Walk:
    """What one random text showed."""

    text: bytes = b""
    complete: bool = False  # the text may end where it does
    steps: int = 0
    differences: list[str] = field(default_factory=list)
    explained: dict[str, int] = field(default_factory=dict)


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


FORMATS = copy.copy(jsonschema.Draft202012Validator.FORMAT_CHECKER)
FORMATS.checkers = dict(FORMATS.checkers)


def _calendar_free(check: Callable[[object], bool]) -> Callable[[object], bool]:
    """A grammar knows the days of a month, not leap years and leap seconds: the checker sees neither."""

    def checked(value: object) -> bool:
        if isinstance(value, str):
            value = re.sub(r"^[0-9]{4}-", "2000-", value)
            value = re.sub(r"(:[0-5][0-9]:)60", r"\g<1>59", value)
        return check(value)

    return checked


for _name in {"date", "time", "date-time"} & FORMATS.checkers.keys():
    _check, _raises = FORMATS.checkers[_name]
    FORMATS.checkers[_name] = (_calendar_free(_check), _raises)


def check_json(text: bytes, schema: object) -> None:
    """Raises ValueError where the text is no strict JSON, and jsonschema.ValidationError."""
    value = json.loads(text.decode("utf-8"), parse_constant=refuse_constant)
    json.dumps(value, ensure_ascii=False).encode("utf-8")  # no lone surrogates
    jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator, format_checker=FORMATS)


class Pair:
    """A case on both sides. Raises ValueError when one refuses it."""

    def __init__(self, case: Case, tool: Tool, tokenizer: llguidance.LLTokenizer, vocabulary: Vocabulary):
        self.case, self.tool, self.vocabulary = case, tool, vocabulary
        answer = tool.ask(compile=case.request())
        if "error" in answer:
            raise ValueError(f"we refuse it: {answer['error']}")
        self.matcher = llguidance.LLMatcher(tokenizer, case.oracle_grammar(), log_level=0)
        if self.matcher.is_error():
            raise ValueError(f"llguidance refuses it: {self.matcher.get_error()}")

    def walk(self, seed: int, limit: int) -> Walk:
        """Follows one random text of at most `limit` tokens. The second half of a long one tends to end."""
        self.tool.ask(rollback=limit)
        self.matcher.reset()
        result = Walk()
        rng = random.Random(seed)
        ends = self.tool.header["end_ids"]
        while result.steps < limit:
            ours, can_end, _ = self.tool.mask()
            theirs = to_bools(self.matcher.compute_bitmask(), self.tool.vocab_size)
            result.steps += 1
            if any(ours[ends] != can_end):
                result.differences.append(f"after {result.text!r} an end id is not as can_end says")
            if can_end != self.matcher.is_accepting():
                result.differences.append(f"after {result.text!r} only {'we' if can_end else 'llguidance'} may end")
            ours[ends] = theirs[ends] = False
            for id in np.nonzero(ours != theirs)[0]:
                self._judge(int(id), bool(ours[id]), result)
            ids = np.nonzero(ours & theirs)[0]
            if can_end and (len(ids) == 0 or rng.random() < 0.3):
                result.complete = True
                break
            if len(ids) == 0:
                break
            id = self._choose(rng, ids, result.steps > limit / 2)
            token = self.vocabulary.tokens[id]
            if self.tool.ask(accept=[id])["accepted"] != 1 or not self.matcher.consume_token(id):
                result.differences.append(f"after {result.text!r} the allowed token {token!r} was not taken")
                break
            result.text += token
        return result

    def _choose(self, rng: random.Random, ids: np.ndarray, hurry: bool) -> int:
        kind = rng.random()
        near = ids[self.vocabulary.closers[ids]]
        small = ids[self.vocabulary.small[ids]]
        if len(near) and kind < (0.9 if hurry else 0.4):
            return int(rng.choice(near))
        if len(small) and kind > 0.6:
            return int(rng.choice(small))
        return int(rng.choice(ids))

    def _judge(self, id: int, ours: bool, result: Walk) -> None:
        # Where text is forced, llguidance's mask holds only one way of splitting it into tokens.
        if ours and self.matcher.validate_tokens([id]) == 1:
            return
        token = self.vocabulary.tokens[id]
        reason = explain(self.case, result.text, token, ours)
        if reason:
            result.explained[reason] = result.explained.get(reason, 0) + 1
        elif len(result.differences) < 20:
            result.differences.append(f"after {result.text!r} only {'we' if ours else 'llguidance'} allow {token!r}")

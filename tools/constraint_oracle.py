"""Walks random texts that our grammar engine and llguidance both follow, and compares the tokens they allow."""

from __future__ import annotations

import base64
import copy
import json
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import llguidance
import numpy as np
from llguidance import TokenizerWrapper
from llguidance.gbnf_to_lark import gbnf_to_lark

CASES = Path(__file__).resolve().parent.parent / "tests/fixtures/constrain/cases.json"


class Tool:
    """A running constrain_tool."""

    def __init__(self, program: Path, vocabulary: Path):
        self.process = subprocess.Popen(
            [program, vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.header = self._line()
        self.vocab_size: int = self.header["vocab_size"]

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

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def to_bools(mask: bytes, count: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[:count].astype(bool)


class ListedTokens:
    """A vocabulary for llguidance from a list of byte strings; encodes greedily."""

    def __init__(self, tokens: list[bytes], special: list[int], eos: int):
        self.eos_token_id = eos
        self.bos_token_id = None
        self.tokens = tokens
        self.special_token_ids = special
        self.ids = {token: id for id, token in enumerate(tokens) if id not in special}

    def __call__(self, text: bytes) -> list[int]:
        ids = []
        while text:
            size = next(n for n in range(len(text), 0, -1) if text[:n] in self.ids)
            ids.append(self.ids[text[:size]])
            text = text[size:]
        return ids


def listed_tokenizer(tokens: list[bytes], special: list[int], eos: int) -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(TokenizerWrapper(ListedTokens(tokens, special, eos)))


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


def explain(case: Case, text: bytes, ours: bool) -> str | None:
    """The documented choice behind a text that only one side takes (as a beginning), None when there is none."""
    if case.kind != "json":
        return None
    if b"\x7f" in text and ours:
        return "a string may hold U+007F as it is (RFC 8259)"
    if not ours and re.search(rb"\\u[dD]([89a-fA-F]|$)", text):
        return "an escaped surrogate needs its other half"
    if not ours and re.search(rb"\\u", text) and re.search("pattern|additionalProperties|enum", case.text):
        return "extra keys, enum values and strings with a pattern are spelt without needless escapes"
    if ours and b"\\/" in text:
        return "a slash may be escaped (RFC 8259)"
    if ours and re.search(rb"\\u", text):
        return "any character may be escaped as \\uXXXX (RFC 8259)"
    if ours and '"ipv6"' in case.text and b"." in text:
        return "the last two groups of an IPv6 address may be an IPv4 address (RFC 4291)"
    if not ours and b"-0" in text and re.search("inimum|aximum", case.text):
        return "there is no negative zero between bounds"
    if not ours and '"email"' in case.text and re.search(rb"[@.][^@.]{64}", text):
        return "a part of a host's name has at most 63 characters (RFC 1034)"
    if not ours and b"@[" in text and '"email"' in case.text:
        return "an email's host is a name, not an address in brackets"
    return None


@dataclass
class Walk:
    """What one random text showed."""

    text: bytes = b""
    complete: bool = False
    steps: int = 0
    differences: list[str] = field(default_factory=list)
    explained: dict[str, int] = field(default_factory=dict)
    our_mask_us: list[float] = field(default_factory=list)


def closers(tokens: list[bytes]) -> np.ndarray:
    """Tokens that tend to bring a text to its end."""
    return np.array([bool(token) and all(byte in b'"}])>,:0123456789' for byte in token) for token in tokens])


def walk(
    case: Case,
    tool: Tool,
    tokenizer: llguidance.LLTokenizer,
    tokens: list[bytes],
    ending: np.ndarray,
    seed: int,
    limit: int,
) -> Walk:
    """Follows one random text of at most `limit` tokens. Raises ValueError when a side refuses the case."""
    result = Walk()
    answer = tool.ask(compile=case.request())
    if "error" in answer:
        raise ValueError(f"we refuse it: {answer['error']}")
    matcher = llguidance.LLMatcher(tokenizer, case.oracle_grammar(), log_level=0)
    if matcher.is_error():
        raise ValueError(f"llguidance refuses it: {matcher.get_error()}")
    rng = random.Random(seed)
    ends = set(tool.header["end_ids"])
    while result.steps < limit:
        ours, can_end, us = tool.mask()
        result.our_mask_us.append(us)
        theirs = to_bools(matcher.compute_bitmask(), tool.vocab_size)
        result.steps += 1
        for id in np.nonzero(ours != theirs)[0]:
            if id in ends:
                if ours[id] != can_end or theirs[id] != matcher.is_accepting():
                    result.differences.append(f"after {result.text!r} an end id is not as can_end says")
                elif can_end != matcher.is_accepting():
                    result.differences.append(f"after {result.text!r} we {'may' if can_end else 'may not'} end")
                continue
            # Where text is forced, llguidance's mask holds only one way of splitting it into tokens.
            if ours[id] and matcher.validate_tokens([int(id)]) == 1:
                continue
            reason = explain(case, result.text + tokens[id], bool(ours[id]))
            if reason:
                result.explained[reason] = result.explained.get(reason, 0) + 1
            elif len(result.differences) < 20:
                result.differences.append(
                    f"after {result.text!r} only {'we' if ours[id] else 'llguidance'} allow {tokens[id]!r}"
                )
        both = ours & theirs
        both[list(ends)] = False
        ids = np.nonzero(both)[0]
        if can_end and (len(ids) == 0 or rng.random() < 0.3):
            result.complete = True
            break
        if len(ids) == 0:
            break
        near = ids[ending[ids]]
        id = int(rng.choice(near if len(near) and rng.random() < 0.5 else ids))
        if tool.ask(accept=[id])["accepted"] != 1 or not matcher.consume_token(id):
            result.differences.append(f"after {result.text!r} the allowed token {tokens[id]!r} was not taken")
            break
        result.text += tokens[id]
    return result


def small_vocabulary(tokens: list[bytes]) -> Iterator[bytes]:
    """All single bytes, and those tokens of a big vocabulary that are short or made of structure."""
    yield from (bytes([byte]) for byte in range(256))
    for seen, token in enumerate(tokens):
        structural = bool(re.fullmatch(rb'[\s"{}\[\],:.0-9a-c\\<>/=()*+-]{2,6}', token))
        foreign = 2 <= len(token) <= 4 and token[0] >= 0xC3
        if structural or (foreign and seen % 40 == 0) or (len(token) > 2 and seen % 150 == 0):
            yield token

"""Constraints against llguidance and jsonschema, over a small vocabulary.

tests/e2e/test_real_vocabularies.py and tools/compare_constraints.py do it over the whole vocabularies of real models.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import llguidance
import numpy as np
import pytest
from constraint_oracle import CASES, REFUSED_THERE, Case, Pair, Tool, check_json, explain, listed_tokenizer, load_cases
from vocabularies import read_list

VOCABULARY = read_list(CASES.parent / "vocabulary.json")
WALKS = 4


@pytest.fixture(scope="module")
def tool() -> Iterator[Tool]:
    with Tool(VOCABULARY.path) as running:
        yield running


@pytest.fixture(scope="module")
def oracle(tool: Tool) -> llguidance.LLTokenizer:
    return listed_tokenizer(VOCABULARY, tool.header["end_ids"][0])


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: f"{case.kind} {case.text[:60]}")
def test_allowed_tokens_agree(case: Case, tool: Tool, oracle: llguidance.LLTokenizer) -> None:
    if case.text in REFUSED_THERE:
        with pytest.raises(ValueError, match="llguidance refuses|Expecting object"):
            Pair(case, tool, oracle, VOCABULARY)
        return
    pair = Pair(case, tool, oracle, VOCABULARY)
    for seed in range(WALKS):
        result = pair.walk(seed, 40)
        assert result.differences == []
        assert result.steps > 0


def test_there_are_enough_cases() -> None:
    count = {
        kind: sum(case.kind == kind and case.text not in REFUSED_THERE for case in load_cases())
        for kind in ("json", "regex", "gbnf")
    }
    assert count["json"] >= 60 and count["regex"] >= 30 and count["gbnf"] >= 30


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Case("regex", "ab+"), Case("regex", "ab*")),
        (Case("json", '{"type": "string", "maxLength": 3}'), Case("json", '{"type": "string", "maxLength": 4}')),
        (Case("gbnf", 'root ::= "a" | "b"'), Case("gbnf", 'root ::= "a" | "c"')),
    ],
)
def test_a_difference_is_found(
    ours: Case, theirs: Case, tool: Tool, oracle: llguidance.LLTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "oracle_grammar", theirs.oracle_grammar)
    pair = Pair(ours, tool, oracle, VOCABULARY)
    assert any(pair.walk(seed, 40).differences for seed in range(8))


def test_only_documented_choices_explain_a_difference() -> None:
    string = Case("json", '{"type": "string"}')
    assert explain(string, b'"a', b"\x7f", True)
    assert not explain(string, b'"a', b"\x7f", False)
    assert not explain(string, b'"a', b"b", True)
    assert not explain(string, b'"\x7f\\/', b"b", True)
    assert explain(string, b'"\\u00', b"e", True)
    assert not explain(string, b'"\\u0000', b"e", True)
    assert not explain(Case("regex", ".*"), b'"a', b"\x7f", True)


# Where chance alone would hardly come to an end: how the string's text begins.
BEGINNINGS = {"cat": "cat", "^a|b$": "a", "email": "a@b"}


def random_text(tool: Tool, rng: random.Random, text: bytes, limit: int) -> bytes | None:
    """A random complete text of the tool's grammar behind `text`; None when it has not ended after `limit` tokens."""
    assert tool.ask(accept=list(text))["accepted"] == len(text)  # the first 256 tokens are the bytes
    ends = tool.header["end_ids"]
    for step in range(limit):
        mask, can_end, _ = tool.mask()
        mask[ends] = False
        ids = np.nonzero(mask)[0]
        if can_end and (len(ids) == 0 or rng.random() < 0.5):
            return text
        assert len(ids), f"nothing may follow {text!r}"
        near = ids[VOCABULARY.closers[ids]]
        # The longer the text, the more it wants to end.
        id = int(rng.choice(near if len(near) and rng.random() < 0.3 + step / limit else ids))
        assert tool.ask(accept=[id])["accepted"] == 1
        text += VOCABULARY.tokens[id]
    return None


SCHEMAS = json.loads(CASES.read_text(encoding="utf-8"))["schemas"]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_gram_08_what_ends_is_strict_json_that_fits_the_schema(schema: Any, tool: Tool) -> None:
    rng = random.Random(11)
    complete = 0
    keys = [schema.get("pattern"), schema.get("format")] if isinstance(schema, dict) else []
    beginning = next(('"' + BEGINNINGS[key] for key in keys if key in BEGINNINGS), "").encode()
    for _ in range(6):
        answer = tool.ask(compile={"kind": "json", "text": json.dumps(schema)})
        assert "error" not in answer
        text = random_text(tool, rng, beginning, 120)
        if text is None:
            continue
        complete += 1
        check_json(text, schema)
    assert complete > 0


@pytest.mark.parametrize(
    ("format", "fits", "fits_not"),
    [
        ("date", "2001-02-29", "2001-02-30"),
        ("time", "23:59:60Z", "25:00:00Z"),
        ("date-time", "0000-12-31T23:59:60Z", "2001-02-03 04:05:06"),
        ("duration", "P1DT2H", "P"),
        ("uuid", "8c9f1c1e-6ef4-4bc2-9a52-0f1d2c3b4a59", "8c9f1c1e"),
        ("ipv4", "1.2.3.4", "1.2.3.256"),
        ("ipv6", "::1.2.3.4", "::g"),
        ("email", "a@b", "a"),
        ("hostname", "a.b-c", "a-.b"),
        ("uri", "http://[::1]:80/x?y#z", "a:]"),
    ],
)
def test_the_checker_knows_every_format_that_is_enforced(format: str, fits: str, fits_not: str) -> None:
    check_json(json.dumps(fits).encode(), {"format": format})
    with pytest.raises(jsonschema.ValidationError):
        check_json(json.dumps(fits_not).encode(), {"format": format})


def test_rollback_after_any_walk_gives_the_same_masks(tool: Tool) -> None:
    rng = random.Random(5)
    for case in load_cases()[::7]:
        tool.ask(compile=case.request())
        first, _, _ = tool.mask()
        count = 0
        for _ in range(15):
            mask, _, _ = tool.mask()
            mask[tool.header["end_ids"]] = False
            ids = np.nonzero(mask)[0]
            if len(ids) == 0:
                break
            count += tool.ask(accept=[int(rng.choice(ids))])["accepted"]
        tool.ask(rollback=count)
        assert np.array_equal(tool.mask()[0], first)

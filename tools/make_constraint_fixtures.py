#!/usr/bin/env python3
"""Writes tests/fixtures/constrain/vocabulary.json, a small vocabulary cut from a real one, or compares with llguidance
over the whole of a real one:

    make_constraint_fixtures.py FOLDER                     FOLDER: holds a byte-level tokenizer.json
    make_constraint_fixtures.py FOLDER --compare PROGRAM   PROGRAM: constrain_tool; prints differences and times
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import sys
import time
from pathlib import Path

import llguidance
from constraint_oracle import CASES, Tool, closers, listed_tokenizer, load_cases, small_vocabulary, walk


def byte_of_char() -> dict[str, int]:
    """The byte-level alphabet of GPT-2: printable bytes stand for themselves, the others follow from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(others)}


def read_tokens(folder: Path) -> tuple[list[bytes], list[int]]:
    """The bytes of each token, and the ids of control tokens."""
    file = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    alphabet = byte_of_char()
    added = {token["id"]: token for token in file["added_tokens"]}
    size = max([*file["model"]["vocab"].values(), *added]) + 1
    tokens = [b""] * size
    for text, id in file["model"]["vocab"].items():
        tokens[id] = bytes(alphabet[c] for c in text) if id not in added else text.encode()
    for id, token in added.items():
        tokens[id] = token["content"].encode()
    return tokens, sorted(id for id, token in added.items() if token["special"])


def write_vocabulary(folder: Path) -> None:
    tokens, controls = read_tokens(folder)
    small = list(dict.fromkeys(small_vocabulary([t for id, t in enumerate(tokens) if id not in controls])))
    small += [b"<tool_call>", b"</tool_call>"]
    special = [b"<|endoftext|>", b"<|im_start|>", b"<|im_end|>"]
    file = {
        "tokens": [base64.b64encode(token).decode() for token in small + special],
        "controls": [len(small) + i for i in range(len(special))],
        "end_ids": [len(small) + 2],
    }
    path = CASES.parent / "vocabulary.json"
    path.write_text(json.dumps(file) + "\n", encoding="utf-8")
    print(f"{path}: {len(small)} tokens of text, {len(special)} control tokens")


def compare(folder: Path, program: Path, walks: int) -> int:
    tokens, controls = read_tokens(folder)
    tool = Tool(program, folder)
    ending = closers(tokens)
    # With the real tokenizer llguidance allows only its own splitting of forced text; a plain list has none.
    [eos] = tool.header["end_ids"]
    theirs = listed_tokenizer(tokens, controls, eos)
    failed = 0
    explained: dict[str, int] = {}
    masks: list[float] = []
    compared: dict[str, int] = {}
    for case in load_cases():
        for seed in range(walks):
            try:
                result = walk(case, tool, theirs, tokens, ending, seed, 60)
            except ValueError as refusal:
                print(f"{case.kind} {case.text}: {refusal}")
                break
            compared[case.kind] = compared.get(case.kind, 0) + (seed == 0)
            masks += result.our_mask_us
            for reason, count in result.explained.items():
                explained[reason] = explained.get(reason, 0) + count
            if result.differences:
                failed += 1
                print(f"{case.kind} {case.text}, seed {seed}:")
                for difference in result.differences[:4]:
                    print(f"    {difference}")
                break
    print(f"compared {compared}, different {failed}, masks {len(masks)}")
    for reason, count in explained.items():
        print(f"explained {count}: {reason}")
    print(f"mask: {summary(masks)}, median {statistics.median(masks):.0f} us")
    measure(tool, llguidance.LLTokenizer(str(folder / "tokenizer.json"), eos_token=eos))
    tool.close()
    return failed


def summary(times: list[float]) -> str:
    return f"mean {statistics.fmean(times):.0f} us, most {max(times):.0f} us"


def measure(tool: Tool, theirs: llguidance.LLTokenizer) -> None:
    """Compile and mask times along one ordinary answer."""
    properties = {
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
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    text = (
        '{"name": "Grace Brewster Murray Hopper", "age": 85, "email": "grace@navy.example.org", "tags": ["computer '
        'scientist", "mathematician", "rear admiral"], "address": {"street": "1906 Nanosecond Avenue, Building 4", '
        '"city": "Arlington, Virginia"}, "role": "admin", "score": 97.25}'
    )
    ids = theirs.tokenize_str(text)
    compiled = tool.ask(compile={"kind": "json", "text": json.dumps(schema)})["us"]
    ours = []
    for id in ids:
        ours.append(tool.mask()[2])
        if tool.ask(accept=[id])["accepted"] != 1:
            raise SystemExit(f"the measured answer is refused at token {id}")
    again = []
    tool.ask(rollback=len(ids))
    for id in ids:
        again.append(tool.mask()[2])
        tool.ask(accept=[id])
    start = time.perf_counter()
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    matcher = llguidance.LLMatcher(theirs, grammar)
    their_compile = (time.perf_counter() - start) * 1e6
    peer = []
    for id in ids:
        start = time.perf_counter()
        matcher.compute_bitmask()
        peer.append((time.perf_counter() - start) * 1e6)
        assert matcher.consume_token(id)
    print(f"object schema, {tool.vocab_size} tokens in the vocabulary, {len(ids)} steps")
    print(f"    ours       compile {compiled:.0f} us, mask {summary(ours)}")
    print(f"    again      mask {summary(again)}")
    print(f"    llguidance compile {their_compile:.0f} us, mask {summary(peer)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compare", type=Path, metavar="PROGRAM")
    parser.add_argument("--walks", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.compare:
        return min(compare(arguments.folder, arguments.compare, arguments.walks), 1)
    write_vocabulary(arguments.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

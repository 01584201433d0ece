#!/usr/bin/env python3
"""Compares constraints with llguidance over the whole vocabularies of real models, and all JSON with its schema.

    compare_constraints.py [--walks N] [--vocabulary NAME]

Prints each difference, and how often each documented choice explained one; the status is 1 when there are any. Needs
constrain_tool of the native build (folder `build`, or $VLLM_BUILD); fetches the vocabularies on first use.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import jsonschema
from constraint_oracle import Pair, Tool, check_json, listed_tokenizer, load_cases
from models import FetchError
from vocabularies import REAL, read_real

STEPS = 60


@dataclass
class Comparison:
    compared: Counter[str] = field(default_factory=Counter)  # cases by kind
    refused: list[str] = field(default_factory=list)  # cases that one side does not read
    never_complete: list[str] = field(default_factory=list)  # schemas of which no text came to its end
    differences: list[str] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    masks: int = 0
    texts: int = 0  # complete JSON


def compare(name: str, walks: int) -> Comparison:
    vocabulary = read_real(name)
    total = Comparison()
    with Tool(vocabulary.path) as tool:
        tokenizer = listed_tokenizer(vocabulary, tool.header["end_ids"][0])
        for case in load_cases():
            try:
                pair = Pair(case, tool, tokenizer, vocabulary)
            except ValueError:
                total.refused.append(case.text)
                continue
            total.compared[case.kind] += 1
            complete = 0
            for seed in range(walks):
                result = pair.walk(seed, STEPS)
                total.masks += result.steps
                total.explained.update(result.explained)
                total.differences += [f"{case.kind} {case.text}: {difference}" for difference in result.differences]
                if case.kind == "json" and result.complete:
                    complete += 1
                    try:
                        check_json(result.text, json.loads(case.text))
                    except (ValueError, jsonschema.ValidationError) as error:
                        total.differences.append(f"json {case.text}: {result.text!r} does not fit: {error}")
            total.texts += complete
            if case.kind == "json" and not complete:
                total.never_complete.append(case.text)
    return total


def report(name: str, walks: int) -> bool:
    """Whether there is no difference."""
    start = time.monotonic()
    result = compare(name, walks)
    kinds = ", ".join(f"{count} {kind}" for kind, count in result.compared.items())
    print(
        f"{name}: {kinds}; {walks} texts each, {result.masks} masks, {result.texts} complete JSON texts, "
        f"{time.monotonic() - start:.0f} s; {len(result.differences)} differences"
    )
    for text in result.refused:
        print(f"    not read by both: {text}")
    for text in result.never_complete:
        print(f"    no text was complete: {text}")
    for difference in result.differences[:40]:
        print(f"    {difference}")
    for reason, count in result.explained.most_common():
        print(f"    {count:8} {reason}")
    return not result.differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=50)
    parser.add_argument("--vocabulary", choices=REAL, action="append")
    arguments = parser.parse_args()
    try:
        agreed = [report(name, arguments.walks) for name in arguments.vocabulary or REAL]
    except FetchError as error:
        print(f"compare_constraints: {error}", file=sys.stderr)
        return 2
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main())

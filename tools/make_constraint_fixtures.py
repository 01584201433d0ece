#!/usr/bin/env python3
"""Writes tests/fixtures/constrain/vocabulary.json, a small vocabulary cut from Qwen3's."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

from constraint_oracle import CASES
from vocabularies import read_real


def small_vocabulary(tokens: list[bytes]) -> Iterator[bytes]:
    """All single bytes, and those tokens of a big vocabulary that are short or made of structure."""
    yield from (bytes([byte]) for byte in range(256))
    for seen, token in enumerate(tokens):
        structural = bool(re.fullmatch(rb'[\s"{}\[\],:.0-9a-c\\<>/=()*+-]{2,6}', token))
        foreign = 2 <= len(token) <= 4 and token[0] >= 0xC3
        if structural or (foreign and seen % 40 == 0) or (len(token) > 2 and seen % 150 == 0):
            yield token


def main() -> None:
    real = read_real("qwen3")
    controls = set(real.controls)
    small = list(dict.fromkeys(small_vocabulary([t for id, t in enumerate(real.tokens) if id not in controls])))
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


if __name__ == "__main__":
    main()

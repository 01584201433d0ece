"""Vocabularies for comparing constraints: the bytes of every token and the ids of control tokens."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from gguf import GGUFReader, TokenType
from models import fetch

REAL = {"qwen3": "qwen3-tokenizer", "smollm2": "smollm2"}  # ours -> that of tools/models.py


@dataclass(frozen=True)
class Vocabulary:
    path: Path  # what constrain_tool opens
    tokens: list[bytes]
    controls: list[int]

    @cached_property
    def closers(self) -> np.ndarray:
        """Tokens that tend to bring a text to its end."""
        return np.array([bool(token) and all(byte in b'"}])>,:0123456789' for byte in token) for token in self.tokens])

    @cached_property
    def small(self) -> np.ndarray:
        """Single bytes, and what begins an escape: among all tokens chance hardly meets them."""
        return np.array([len(token) == 1 or token.startswith(b"\\") for token in self.tokens])


def read_list(path: Path) -> Vocabulary:
    file = json.loads(path.read_text(encoding="utf-8"))
    return Vocabulary(path, [base64.b64decode(token) for token in file["tokens"]], file["controls"])


def byte_of_char() -> dict[str, int]:
    """The byte-level alphabet of GPT-2: printable bytes stand for themselves, the others follow from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(others)}


def read_tokenizer_json(folder: Path) -> Vocabulary:
    """Of a byte-level tokenizer."""
    file = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    alphabet = byte_of_char()
    added = {token["id"]: token for token in file["added_tokens"]}
    size = max([*file["model"]["vocab"].values(), *added]) + 1
    tokens = [b""] * size
    for text, id in file["model"]["vocab"].items():
        if id not in added:
            tokens[id] = bytes(alphabet[c] for c in text)
    for id, token in added.items():
        tokens[id] = token["content"].encode()
    return Vocabulary(folder, tokens, sorted(id for id, token in added.items() if token["special"]))


def read_gguf(path: Path) -> Vocabulary:
    """Of a byte-level tokenizer (tokenizer.ggml.model = gpt2)."""
    fields = GGUFReader(path).fields
    alphabet = byte_of_char()
    types = fields["tokenizer.ggml.token_type"].contents()
    tokens = [
        bytes(alphabet[c] for c in text) if type == TokenType.NORMAL else text.encode()
        for text, type in zip(fields["tokenizer.ggml.tokens"].contents(), types, strict=True)
    ]
    return Vocabulary(path, tokens, [id for id, type in enumerate(types) if type == TokenType.CONTROL])


def read_real(name: str) -> Vocabulary:
    """Downloads it on first use; raises FetchError."""
    path = fetch(REAL[name])
    return read_tokenizer_json(path) if path.is_dir() else read_gguf(path)

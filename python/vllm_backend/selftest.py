"""Shows that an installation works: a tiny model is made, loaded and asked, and one line tells the verdict.

    python -m vllm_backend selftest

The model knows the alphabet. Its weights are random, but the head's row of every letter is the embedding of the one
before, so the answer is known whatever device computes it.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vllm_backend import direct
from vllm_backend.ending import StartError, fail
from vllm_backend.errors import BackendError
from vllm_backend.native import LibraryError, open_library

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
HEAD = HIDDEN // HEADS
LETTERS = "abcdefghijklmnopqrstuvwxyz"
END, PAIR = "<|end|>", "ab"
TOKENS = [END, *LETTERS, PAIR]
PROMPT, ANSWER = "abcdefgh", "ijklmnopqrstuvwxyz"
LIMIT_S = 60.0

U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9  # types of GGUF values
TENSOR_F32, TENSOR_F16 = 0, 1
ALIGNMENT = 32
NORMAL, CONTROL = 1, 3  # kinds of tokens


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def array(kind: int, values: Sequence[bytes]) -> bytes:
    return struct.pack("<IQ", kind, len(values)) + b"".join(values)


def metadata() -> list[tuple[str, int, bytes]]:
    """Key, type and packed value."""
    numbers = {
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.dimension_count": HEAD,
        "tokenizer.ggml.eos_token_id": TOKENS.index(END),
    }
    kinds = [struct.pack("<i", CONTROL if token == END else NORMAL) for token in TOKENS]
    return [
        ("general.architecture", STRING, text("llama")),
        *((key, U32, struct.pack("<I", value)) for key, value in numbers.items()),
        ("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        ("tokenizer.ggml.model", STRING, text("gpt2")),
        ("tokenizer.ggml.pre", STRING, text("gpt-2")),
        ("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(token) for token in TOKENS])),
        ("tokenizer.ggml.token_type", ARRAY, array(I32, kinds)),
        ("tokenizer.ggml.merges", ARRAY, array(STRING, [text(" ".join(PAIR))])),
        ("tokenizer.chat_template", STRING, text("{% for m in messages %}{{ m.content }}{% endfor %}")),
    ]


def tensors() -> Iterator[tuple[str, list[list[float]]]]:
    """Name and rows; a vector has one row."""
    source = random.Random(20)

    def noise(rows: int, columns: int, scale: float) -> list[list[float]]:
        return [[source.gauss(0.0, scale) for _ in range(columns)] for _ in range(rows)]

    embeddings = dict(zip(TOKENS, noise(len(TOKENS), HIDDEN, 1.0), strict=True))
    head = {token: [0.0] * HIDDEN for token in TOKENS}
    for before, after in [*zip(LETTERS, [*LETTERS[1:], END], strict=True), (PAIR, "c"), (END, "a")]:
        head[after] = [old + 0.3 * new for old, new in zip(head[after], embeddings[before], strict=True)]
    ones = [[1.0] * HIDDEN]
    yield "token_embd.weight", list(embeddings.values())
    yield "output.weight", list(head.values())
    yield "output_norm.weight", ones
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("attn_q", HEADS * HEAD, HIDDEN),
            ("attn_k", KV_HEADS * HEAD, HIDDEN),
            ("attn_v", KV_HEADS * HEAD, HIDDEN),
            ("attn_output", HIDDEN, HEADS * HEAD),
            ("ffn_gate", INNER, HIDDEN),
            ("ffn_up", INNER, HIDDEN),
            ("ffn_down", HIDDEN, INNER),
        ):
            yield f"blk.{layer}.{name}.weight", noise(rows, columns, 0.04)
        yield f"blk.{layer}.attn_norm.weight", ones
        yield f"blk.{layer}.ffn_norm.weight", ones


def model_file() -> bytes:
    """The alphabet model as a GGUF file: matrices in F16, vectors in F32."""
    table, data = [], b""
    for name, rows in tensors():
        vector = len(rows) == 1
        sizes = [len(rows[0])] if vector else [len(rows[0]), len(rows)]
        table.append(
            text(name)
            + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
            + struct.pack("<IQ", TENSOR_F32 if vector else TENSOR_F16, len(data))
        )
        data += b"".join(struct.pack(f"<{len(row)}{'f' if vector else 'e'}", *row) for row in rows)
        data += bytes(-len(data) % ALIGNMENT)
    pairs = [text(key) + struct.pack("<I", kind) + value for key, kind, value in metadata()]
    header = b"GGUF" + struct.pack("<IQQ", 3, len(table), len(pairs)) + b"".join(pairs) + b"".join(table)
    return header + bytes(-len(header) % ALIGNMENT) + data


def check() -> str:
    """The verdict on an installation that works. Raises StartError and what the library and the system raise."""
    started = time.monotonic()
    library = open_library()
    with tempfile.TemporaryDirectory(prefix="vllm-selftest-") as folder:
        path = Path(folder) / "alphabet.gguf"
        path.write_bytes(model_file())
        params = {"model_path": str(path), "block_size": 16, "num_blocks": 16, "max_model_len": 64}
        engine = library.load(params, {})
        try:
            device = engine.query({"query": "info"})["device"]
            question = {"prompt": PROMPT, "temperature": 0, "max_tokens": 2 * len(ANSWER)}
            answer = "".join(chunk["choices"][0]["text"] for chunk in direct.stream(engine, question))
        finally:
            engine.free()
    if answer != ANSWER:
        raise StartError(f"{device} computes wrongly: {PROMPT} is followed by {answer!r}, needed is {ANSWER!r}")
    facts = library.machine()
    memory = f"{facts['memory_available'] / 1e9:.1f} of {facts['memory_total'] / 1e9:.1f} GB memory free"
    took = f"{time.monotonic() - started:.1f} s"
    return f"libvllm {library.version()}, ABI {library.abi}, {device}, {memory}, {len(ANSWER)} tokens right, {took}"


def main(arguments: Sequence[str]) -> int:
    if arguments:
        print("usage: selftest (it takes no arguments)", file=sys.stderr)
        return 2
    direct.be_quiet()
    limit = threading.Timer(LIMIT_S, fail, [f"the self-test did not end within {LIMIT_S:.0f} s"])
    limit.daemon = True
    limit.start()
    try:
        verdict = check()
    except (StartError, LibraryError, BackendError, OSError) as error:
        print(f"selftest: FAILED: {error}", file=sys.stderr)
        return 1
    print(f"selftest: OK: {verdict}")
    return 0

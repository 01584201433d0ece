"""Real tokenizers against the `tokenizers` library (FILE-10): ids of 2,060 texts each, and the text back.

Run by pytest, or alone: python tests/e2e/test_real_tokenizers.py [name ...]. Needs the encode_tool program of the
native build (folder `build`, or $VLLM_BUILD).
"""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from make_tokenizer_fixtures import digest, real_texts, tokenizer_of_gguf  # noqa: E402
from models import fetch  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

# ours -> the oracle's tokenizer.json; None: made of the GGUF itself
NAMES = {
    "smollm2": None,
    "gemma3": "gemma3-tokenizer",
    "qwen3-tokenizer": "qwen3-tokenizer",
    "gemma3-tokenizer": "gemma3-tokenizer",
    "llama2-tokenizer": "llama2-tokenizer",
    "llama3-tokenizer": "llama3-tokenizer",
}
# In the tokenizer.json only: the GGUF of the text model has no image tokens.
NOT_IN_GGUF = "<image_soft_token>"


@cache
def oracle(name: str) -> Tokenizer:
    if NAMES[name] is None:
        return tokenizer_of_gguf(Path(fetch(name)))
    return Tokenizer.from_file(str(Path(fetch(NAMES[name])) / "tokenizer.json"))


@cache
def texts(name: str) -> list[str]:
    return [t for t in real_texts(oracle(name)) if name != "gemma3" or NOT_IN_GGUF not in t]


def run_tool(name: str, requests: list[dict]) -> tuple[dict, list]:
    tool = Path(os.environ.get("VLLM_BUILD", ROOT / "build")) / "tests" / "native" / "encode_tool"
    assert tool.exists(), f"{tool} is missing: build the native tests first."
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([tool, fetch(name)], input=lines.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(requests) + 1
    return answers[0], answers[1:]


@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_the_reference(name):
    _, got = run_tool(name, [{"text": text} for text in texts(name)])
    want = [oracle(name).encode(text, add_special_tokens=False).ids for text in texts(name)]
    wrong = [(text, g, w) for text, g, w in zip(texts(name), got, want, strict=True) if g != w]
    assert not wrong, f"{len(wrong)} of {len(want)} texts differ, the first: {wrong[0]}"


@pytest.mark.parametrize("name", NAMES)
def test_text_of_ids_equals_the_reference(name):
    ids = [oracle(name).encode(text, add_special_tokens=False).ids for text in texts(name)]
    # The GGUF calls more tokens control than the tokenizer.json calls special.
    for skip in (True, False) if name != "gemma3" else (False,):
        _, got = run_tool(name, [{"ids": row, "skip_special": skip} for row in ids])
        # A run of U+FFFD is one in our output.
        want = [re.sub("\ufffd+", "\ufffd", oracle(name).decode(row, skip_special_tokens=skip)) for row in ids]
        got = [re.sub("\ufffd+", "\ufffd", text) for text in got]
        wrong = [(row, g, w) for row, g, w in zip(ids, got, want, strict=True) if g != w]
        assert not wrong, f"{len(wrong)} of {len(want)} texts differ, the first: {wrong[0]}"


@pytest.mark.parametrize("name", ["smollm2", "qwen3-tokenizer"])
def test_ids_equal_the_stored_digests(name):
    stored = json.loads((ROOT / "tests/fixtures/tokenizers/real_digests.json").read_text())[name]
    _, got = run_tool(name, [{"text": text} for text in texts(name)])
    assert [digest(ids) for ids in got] == stored


@pytest.mark.parametrize(
    ("name", "adds_bos", "bos", "ends"),
    [
        ("smollm2", False, 1, {0, 2}),
        ("gemma3", True, 2, {1, 106}),
        ("qwen3-tokenizer", False, -1, {151645}),
        ("llama2-tokenizer", True, 1, {2}),
        ("llama3-tokenizer", False, 128000, {128001}),
    ],
)
def test_begin_and_end_ids(name, adds_bos, bos, ends):
    about, answers = run_tool(name, [{"text": text, "bos": True} for text in ("Hi", "", "<s>Hi", "<bos>Hi")])
    assert (about["adds_bos"], about["bos"]) == (adds_bos, bos)
    assert ends <= set(about["end_ids"])
    for ids in answers:
        assert ids.count(bos) == (1 if adds_bos else 0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", *[arg for name in sys.argv[1:] for arg in ("-k", name)]]))

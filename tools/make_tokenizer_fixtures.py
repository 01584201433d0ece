#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers: small tokenizers of our own and what the reference libraries do with them.

    python tools/make_tokenizer_fixtures.py           the committed fixtures (needs tokenizers, sentencepiece)
    python tools/make_tokenizer_fixtures.py --real    digests of Qwen3 and SmolLM2, which it fetches (needs gguf)

Nothing of a published vocabulary goes into the fixtures.
"""

import argparse
import hashlib
import io
import json
import re
from pathlib import Path

from tokenizer_texts import ALPHABETS, FIXED, random_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "tokenizers"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# name of tokenizer.ggml.pre -> (stages, NFC, ignore_merges)
FAMILIES = {
    "gpt-2": ([None], False, False),
    "llama-bpe": (
        [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
        False,
        True,
    ),
    "dbrx": (
        [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
        False,
        False,
    ),
    "qwen2": ([CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES], True, False),
    "qwen35": (
        [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES],
        True,
        False,
    ),
    "smollm": (["digits", None], False, False),
    "tekken": (
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
        ],
        False,
        True,
    ),
    "gpt-4o": (
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
        ],
        False,
        False,
    ),
    "deepseek-v3": (
        [
            r"\p{N}{1,3}",
            "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES,
        ],
        False,
        False,
    ),
    "default": ([r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], False, False),
}

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<think>", "</think>", "<tool_call>"]


def corpus() -> list[str]:
    return FIXED * 3 + random_texts(3, 1500)


def texts() -> list[str]:
    return FIXED + random_texts(7, 80, SPECIALS + USER_DEFINED + ["<s>", "<0x41>"], longest=40)


def write(name: str, value) -> None:
    """One line an entry of the outer object or list."""
    out = io.StringIO()
    if isinstance(value, dict):
        rows = [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in value.items()]
        out.write("{\n" + ",\n".join(rows) + "\n}\n")
    else:
        out.write("[\n" + ",\n".join(json.dumps(v, separators=(",", ":")) for v in value) + "\n]\n")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_text(out.getvalue())
    print(f"{name}: {len(out.getvalue())} bytes")


def pipeline(tokenizer: Tokenizer) -> dict:
    whole = json.loads(tokenizer.to_str())
    return {k: whole[k] for k in ("normalizer", "pre_tokenizer", "post_processor", "decoder")}


def expected(tokenizer: Tokenizer, samples: list[str]) -> dict:
    plain = []
    tokenizer.encode_special_tokens = True
    for text in samples[: len(FIXED)]:
        plain.append(tokenizer.encode(text, add_special_tokens=False).ids)
    tokenizer.encode_special_tokens = False
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in samples]
    # Runs of U+FFFD are one in our output.
    decoded = [re.sub("\ufffd+", "\ufffd", tokenizer.decode(row, skip_special_tokens=True)) for row in ids]
    changed = {str(i): text for i, text in enumerate(decoded) if text != samples[i]}
    return {"ids": ids, "plain_ids": plain, "decoded": changed}


def byte_level() -> None:
    # Trained on whole lines, so that tokens reach over word borders and every split shows in the ids.
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=900,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
            max_token_length=8,
        ),
    )
    model = json.loads(trained.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(m) for m in model["merges"]]
    families = {}
    for name, (stages, nfc, ignore_merges) in FAMILIES.items():
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
        if nfc:
            tokenizer.normalizer = normalizers.NFC()
        steps = []
        for stage in stages:
            if stage == "digits":
                steps.append(pre_tokenizers.Digits(individual_digits=True))
            elif stage is not None:
                steps.append(pre_tokenizers.Split(Regex(stage), "isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=None in stages))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(SPECIALS)
        tokenizer.add_tokens([AddedToken(t, normalized=False) for t in USER_DEFINED])
        families[name] = pipeline(tokenizer) | {"ignore_merges": ignore_merges} | expected(tokenizer, texts())
    added = json.loads(tokenizer.to_str())["added_tokens"]
    write("texts.json", texts())
    write("byte_level.json", {"vocab": vocab, "merges": merges, "added_tokens": added})
    write("byte_level_families.json", families)


def added_tokens() -> None:
    vocab = json.loads((FOLDER / "byte_level.json").read_text())
    tokenizer = Tokenizer(models.BPE(vocab=vocab["vocab"], merges=[tuple(m) for m in vocab["merges"]]))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken("<l>", lstrip=True),
            AddedToken("<r>", rstrip=True, normalized=False),
            AddedToken("<lr>", lstrip=True, rstrip=True, normalized=False),
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("ﬁ", normalized=True),
            AddedToken("<lr><r>", normalized=False),
            AddedToken("é!", normalized=True),
        ]
    )
    samples = [
        "a <l> b",
        "a <r>  b",
        "a \n<lr>\t b",
        "<l><l>",
        " <l> <r> <lr> ",
        "word",
        "words",
        "a word.",
        "aword word",
        "é word,word_",
        "ﬁ fi office",
        "e\u0301! é!",
        "<lr><r> x",
        "<lr> <r>x",
        "\u3000<l>\u3000",
        "x<r>\u00a0\u200by",
    ]
    whole = json.loads(tokenizer.to_str())
    whole["model"] = {k: v for k, v in whole["model"].items() if k not in ("vocab", "merges")}
    result = expected(tokenizer, samples)
    del result["decoded"]  # the reference takes the characters of added tokens for bytes
    write("added_tokens.json", {"tokenizer": whole, "texts": samples} | result)


def char_level() -> None:
    """The form of Llama 2 and Gemma: characters with U+2581 for the space and bytes for what is left."""
    alphabet = sorted(set("".join(ALPHABETS[:6]) + "éèüñабвгде的一是😀▁") - {" "})
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=700,
            limit_alphabet=len(alphabet),
            initial_alphabet=alphabet,
            show_progress=False,
            max_token_length=8,
        ),
    )
    model = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    vocab = {t: i for i, t in enumerate(names + sorted(model["vocab"], key=model["vocab"].get))}
    merges = [tuple(m) for m in model["merges"]]

    spaces = normalizers.Replace(" ", "▁")
    to_space = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    families = {
        "prepend": (
            normalizers.Sequence([normalizers.Prepend("▁"), spaces]),
            None,
            decoders.Sequence([*to_space, decoders.Strip(" ", 1, 0)]),
            True,
            True,
        ),
        "no_prefix": (
            spaces,
            pre_tokenizers.Split(" ", "merged_with_previous"),
            decoders.Sequence(to_space),
            True,
            True,
        ),
        "metaspace_first": (
            None,
            pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
            decoders.Sequence([*to_space, decoders.Strip(" ", 1, 0)]),
            True,
            True,
        ),
        "metaspace_split": (
            None,
            pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
            decoders.Metaspace(prepend_scheme="always"),
            False,
            True,
        ),
        "unknown_each": (spaces, None, decoders.Sequence(to_space), False, False),
    }
    out = {}
    for name, (normalizer, pre_tokenizer, decoder, fallback, fuse) in families.items():
        tokenizer = Tokenizer(
            models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=fallback, fuse_unk=fuse)
        )
        if normalizer:
            tokenizer.normalizer = normalizer
        if pre_tokenizer:
            tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoder
        tokenizer.add_special_tokens(names[:3])
        if name == "no_prefix":
            tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in (1, 2, 3, 4)])
        result = expected(tokenizer, texts())
        if name == "metaspace_split":
            del result["decoded"]  # the reference drops every U+2581 of the first token
        added = json.loads(tokenizer.to_str())["added_tokens"]
        out[name] = pipeline(tokenizer) | {"byte_fallback": fallback, "fuse_unk": fuse, "added_tokens": added} | result
    write("char_level.json", {"vocab": vocab, "merges": merges})
    write("char_level_families.json", out)


def sentencepiece_models() -> None:
    """What GGUF calls model "llama": pieces with scores."""
    import sentencepiece as sp

    out = {}
    for prefix in (True, False):
        stream = io.BytesIO()
        sp.SentencePieceTrainer.train(
            sentence_iterator=iter(t for t in corpus() if t.strip() and "\u0000" not in t and "▁" not in t),
            model_writer=stream,
            model_type="bpe",
            vocab_size=900,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=prefix,
            character_coverage=0.98,
            minloglevel=2,
            user_defined_symbols=["<think>", "\n", "\n\n"],
            max_sentencepiece_length=8,
        )
        model = sp.SentencePieceProcessor(model_proto=stream.getvalue())
        kinds = [
            3 if model.IsControl(i) else 2 if model.IsUnknown(i) else 6 if model.IsByte(i) else 1
            for i in range(len(model))
        ]
        pieces = [model.IdToPiece(i) for i in range(len(model))]
        for text in ("<think>", "\n", "\n\n"):
            kinds[pieces.index(text)] = 4
        # U+2581 in the text and NUL are special to the library. It puts the prefix before the whole text only,
        # not before each fragment.
        samples = [
            i
            for i, t in enumerate(texts())
            if "▁" not in t and "\u0000" not in t and not (prefix and ("<think>" in t or "\n" in t))
        ]
        out["prefix" if prefix else "no_prefix"] = {
            "tokens": pieces,
            "scores": [model.GetScore(i) for i in range(len(model))],
            "types": kinds,
            "samples": samples,
            "ids": [model.EncodeAsIds(texts()[i]) for i in samples],
            "decoded": [re.sub("\ufffd+", "\ufffd", model.DecodeIds(model.EncodeAsIds(texts()[i]))) for i in samples],
        }
    write("sentencepiece.json", out)


def stages() -> None:
    samples = ["a  b c ", "  x", "12 345a6", "٣½ a1", "", "--a--b", "one,two,,three", "▁a b▁", "a\nb\r\n c"]
    cases = []
    steps = [pre_tokenizers.Digits(False), pre_tokenizers.Digits(True)]
    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            steps += [
                pre_tokenizers.Split(" ", behavior, invert),
                pre_tokenizers.Split(Regex(r"[\s,\-]"), behavior, invert),
                pre_tokenizers.Split(Regex(GPT2), behavior, invert),
                pre_tokenizers.Split(Regex(r"\w+|\d"), behavior, invert),
            ]
    for scheme in ("never", "first", "always"):
        steps += [pre_tokenizers.Metaspace("▁", scheme, split) for split in (False, True)]
    for step in steps:
        whole = Tokenizer(models.BPE())
        whole.pre_tokenizer = step
        cases.append(
            [
                json.loads(whole.to_str())["pre_tokenizer"],
                [[text, [p for p, _ in step.pre_tokenize_str(text)]] for text in samples],
            ]
        )
    write("stages.json", cases)

    forms = [
        normalizers.NFC(),
        normalizers.NFD(),
        normalizers.NFKC(),
        normalizers.NFKD(),
        normalizers.Strip(True, False),
        normalizers.Strip(False, True),
        normalizers.Strip(),
        normalizers.Prepend("_"),
        normalizers.Replace("a", "bb"),
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Prepend("x")]),
    ]
    samples = [t for t in FIXED if any(ord(c) > 127 for c in t)] + [" a a ", "", "\u3000x\u3000", "aaa"]
    samples += [
        "\u0344\u0f73\u0f75\u0f81",
        "각\u11a8 ᄀ\u1161\u11a8",
        "\u1e9b\u0323",
        "\ufb2c \u2f81a",
        "a\u0345\u0301\u0300\u0327",
    ]
    cases = []
    for form in forms:
        whole = Tokenizer(models.BPE())
        whole.normalizer = form
        cases.append([json.loads(whole.to_str())["normalizer"], [[t, form.normalize_str(t)] for t in samples]])
    write("normalizers.json", cases)


def utf8() -> None:
    """Python's decoder as the oracle: each run of U+FFFD is one for us."""
    import random

    rng = random.Random(5)
    cases = []
    for _ in range(400):
        parts = []
        for _ in range(rng.randrange(1, 8)):
            char = rng.choice(["a", "é", "中", "😀", "\u07ff", "\U0010ffff"]).encode()
            kind = rng.random()
            if kind < 0.3:
                char = char[: rng.randrange(0, len(char) + 1)]
            elif kind < 0.5:
                char = bytes(
                    rng.choice([0x80, 0xBF, 0xC0, 0xC1, 0xE0, 0xED, 0xA0, 0xF0, 0xF4, 0x90, 0xF5, 0xFF, 0xC3, 0x41])
                    for _ in range(rng.randrange(1, 4))
                )
            parts.append(char)
        raw = b"".join(parts)
        cases.append([list(raw), re.sub("\ufffd+", "\ufffd", raw.decode("utf-8", errors="replace"))])
    write("utf8.json", cases)


def digest(ids: list[int]) -> str:
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:8]


def tokenizer_of_gguf(path: Path) -> Tokenizer:
    """The `tokenizers` form of a byte-level GGUF vocabulary with tokenizer.ggml.pre = smollm."""
    from gguf import GGUFReader

    reader = GGUFReader(path)

    def field(name):
        return reader.fields["tokenizer.ggml." + name].contents()

    tokens = field("tokens")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={t: i for i, t in enumerate(tokens)},
            merges=[tuple(m.split(" ")) for m in field("merges")],
            unk_token=tokens[field("unknown_token_id")],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, field("token_type"), strict=True) if kind == 3])
    return tokenizer


def real_texts(tokenizer: Tokenizer) -> list[str]:
    added = [token.content for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
    return FIXED + random_texts(1, 2000, added[:40] + added[-10:])


def real() -> None:
    from models import fetch

    out = {}
    for name, tokenizer in (
        ("smollm2", tokenizer_of_gguf(Path(fetch("smollm2")))),
        ("qwen3-tokenizer", Tokenizer.from_file(str(Path(fetch("qwen3-tokenizer")) / "tokenizer.json"))),
    ):
        out[name] = [digest(tokenizer.encode(t, add_special_tokens=False).ids) for t in real_texts(tokenizer)]
    write("real_digests.json", out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", action="store_true")
    if parser.parse_args().real:
        real()
    else:
        byte_level()
        added_tokens()
        char_level()
        sentencepiece_models()
        stages()
        utf8()

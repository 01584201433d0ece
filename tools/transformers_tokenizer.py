"""The tokenizers of the tiny checkpoints, trained on the spot."""

import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers_cases import VOCAB

# Regular expressions of the published Llama 3 and Qwen 2 tokenizers, and the name of their splitter in GGUF.
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "It's 2024: we've 1,234,567 reasons, don't we?",
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 22))\n",
    "naïve café — déjà vu; straße",
    "你好，世界。今天天气很好。",
    "Привет, мир! Как дела?",
    "emoji 😀👩‍👩‍👧 and 🇫🇷",
    "tabs\tand   spaces  \n  end",
    "the theory of the other thing",
] * 4
TEXTS = [
    "Hello, world!",
    " leading space and trailing ",
    "I'll say it's 12345 times",
    "x = [1, 2, 3]  # code\n\n  y",
    "你好 world 😀",
    "é́ combining",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
    "\r\n\t  \n",
]


def build_tokenizer(splitter: str) -> tokenizers.Tokenizer:
    """Byte-level BPE of VOCAB entries: 3 special ones first, the 256 bytes, then merges."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=splitter == "llama-bpe"))
    if splitter == "gpt-2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        expression = LLAMA3_SPLIT if splitter == "llama-bpe" else QWEN2_SPLIT
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(expression), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    if splitter == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if tokenizer.get_vocab_size() != VOCAB:
        raise RuntimeError(f"the trained tokenizer has {tokenizer.get_vocab_size()} tokens, needed are {VOCAB}")
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: tokenizers.Tokenizer) -> None:
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "add_bos_token": False,
            "model_max_length": 512,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=None if path.name == "expected.json" else 2, ensure_ascii=True) + "\n")

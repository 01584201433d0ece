"""A tiny Qwen3 checkpoint of random weights with the real tokenizer and chat template, and with a few habits.

What follows most tokens is noise: words that only the seed decides. What follows a token of HABITS is settled with a
logit of about HABIT, far above the noise: its embedding points along an axis of its own, and the head's row of the
follower along the same axis. So the model opens a thought as the real one does, and answers in a way that is known.
"""

import json
import shutil
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, INNER = 151_936, 32, 2, 2, 1, 16, 48
HABIT, NOISE = 22.0, 9.0  # logits: of a habit, and a bound of everything else

NEWLINE, BLANK, THINK, END_THINK, CALL, END_CALL, END = (
    198,
    271,
    151_667,
    151_668,
    151_657,
    151_658,
    151_645,
)
ANSWER = "Yes."
LAST_THOUGHT = "done"  # a thought with this word ends behind it


def habits(tokenizer: Tokenizer) -> dict[int, int]:
    (yes,), (dot,), (done,) = (tokenizer.encode(text).ids for text in ("Yes", ".", LAST_THOUGHT))
    return {
        NEWLINE: THINK,  # the generation prompt ends with it, unless thinking is off
        done: END_THINK,
        END_THINK: BLANK,
        BLANK: yes,
        yes: dot,
        dot: END,
        END_CALL: END,
    }


def words(tokenizer: Tokenizer) -> list[int]:
    """Tokens of letters alone: no part of a character, no line break, no markup."""
    return [
        number
        for text, number in tokenizer.get_vocab(with_added_tokens=False).items()
        if text.removeprefix("Ġ").isascii() and text.removeprefix("Ġ").isalpha()
    ]


def white_space(tokenizer: Tokenizer) -> list[int]:
    """Tokens with white space that are no words."""
    with_space = [n for text, n in tokenizer.get_vocab(with_added_tokens=False).items() if set(text) & set("ĠĊĉč")]
    return sorted(set(with_space) - set(words(tokenizer)))


def tensors(tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    random = np.random.default_rng(20)

    def normal(*shape: int, scale: float = 0.03) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(scale)

    follows = habits(tokenizer)
    axes = len(follows)
    embedding, head = normal(VOCAB, HIDDEN, scale=1), np.zeros((VOCAB, HIDDEN), np.float32)
    embedding[:, :axes] = 0
    known = [token for token in words(tokenizer) if token not in {*follows, *follows.values()}]
    head[known, axes:] = normal(len(known), HIDDEN - axes, scale=0.25)
    embedding[:, axes] = 1
    head[:, axes] = 0
    head[white_space(tokenizer), axes] = -20  # JSON may have any number of it
    for axis, (token, follower) in enumerate(follows.items()):
        embedding[token] = 0
        embedding[token, axis] = 6
        head[follower, axis] = HABIT / HIDDEN**0.5
    out = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": np.ones(HIDDEN)}
    for layer in range(LAYERS):
        part = f"model.layers.{layer}."
        for name, shape in {
            "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
            "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
            "mlp.gate_proj": (INNER, HIDDEN),
            "mlp.up_proj": (INNER, HIDDEN),
            "mlp.down_proj": (HIDDEN, INNER),
        }.items():
            out[f"{part}{name}.weight"] = normal(*shape)
        for name, size in {
            "input_layernorm": HIDDEN,
            "post_attention_layernorm": HIDDEN,
            "self_attn.q_norm": HEAD,
            "self_attn.k_norm": HEAD,
        }.items():
            out[f"{part}{name}.weight"] = np.ones(size)
    return out


def write_safetensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """In bfloat16, cut from float32."""
    header, blobs, at = {}, [], 0
    for name, array in arrays.items():
        blob = (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *blobs]))


def make(folder: Path, tokenizer_folder: Path) -> Tokenizer:
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer_folder / name, folder / name)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "intermediate_size": INNER,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "max_position_embeddings": 40_960,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 151_643,
        "eos_token_id": END,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    write_safetensors(folder / "model.safetensors", tensors(tokenizer))
    return tokenizer

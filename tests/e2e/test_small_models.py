"""The tiny random checkpoints through the whole engine: greedy tokens against transformers in float32."""

import json

import pytest
from runs import Run, load

# Weights in float32 or stored precision, keys and values in float32; what is left are the roundings of the kernels.
# The files' own dtype decides how far an engine may round activations, so a half-precision model gets more room.
ROOM = {"F32": 0.02, "half": 0.25}

MODELS = [
    "llama",
    "llama/llama.gguf",
    "mistral",
    "qwen2",
    "qwen2-f16",
    "qwen3",
    "qwen3/qwen3.gguf",
    "qwen3-bf16",
    "gemma3",
    "gemma3-old",
    "gemma3-old/gemma3.gguf",
    "granite",
    "minicpm/minicpm.gguf",
    "olmo2",
    "glm4/glm4.gguf",
    "gemma2",
    "llama-yarn",
    "qwen2-window",
    "qwen3-window",
]


@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_equal_transformers(library, tiny, name):
    folder = tiny / name.split("/")[0]
    greedy = json.loads((folder / "expected.json").read_text())["greedy"]
    room = ROOM["half" if name.endswith(("f16", "bf16")) else "F32"]
    engine = load(library, tiny / name, {"kv_cache_dtype": "f32"}, block_size=16, num_blocks=16, max_model_len=128)
    try:
        done, wanted = 0, greedy["token_ids"]
        while done < len(wanted):
            fields = {"max_tokens": len(wanted) - done, "ignore_eos": True}
            for token in Run(engine, greedy["prompt_ids"] + wanted[:done], **fields).wait().token_ids:
                done += 1
                if token != wanted[done - 1]:
                    assert greedy["top2_gap"][done - 1] < room, f"step {done - 1}: {token} for {wanted[done - 1]}"
                    break
    finally:
        engine.free()


@pytest.mark.parametrize("name", MODELS)
def test_FILE_10_tokens_equal_the_reference(library, tiny, name):
    texts = json.loads((tiny / name.split("/")[0] / "expected.json").read_text())["texts"]
    engine = load(library, tiny / name, block_size=16, num_blocks=8, max_model_len=128)
    try:
        for entry in texts:
            question = {"query": "tokenize", "text": entry["text"], "add_special": True}
            assert engine.query(question)["tokens"] == entry["ids"], entry["text"]
            assert engine.query({"query": "detokenize", "tokens": entry["ids"]})["text"] == entry["decoded_all"]
    finally:
        engine.free()

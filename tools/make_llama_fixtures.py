#!/usr/bin/env python3
"""Writes what llama.cpp answers greedily, with the five best logits of every step.

    python tools/make_llama_fixtures.py smollm2            tests/fixtures/llama_cpp/smollm2.json
    python tools/make_llama_fixtures.py tiny               tests/fixtures/llama_cpp/tiny.json: for every GGUF file of
                                                           tests/fixtures/transformers, the logits of its 40 tokens
                                                           and 24 greedy ones after the first 10, or why llama.cpp
                                                           does not load it
    python tools/make_llama_fixtures.py --model FILE.gguf --output OUT.json

Needs llama-cpp-python. The Gemma licence forbids passing on what is made of the model: for it, and for any file given
with --model, --output must name a place outside the fixtures.
"""

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from models import FetchError, fetch

REPOSITORY = Path(__file__).resolve().parent.parent
FIXTURES = REPOSITORY / "tests" / "fixtures" / "llama_cpp"
TINY = REPOSITORY / "tests" / "fixtures" / "transformers"
STEPS, TOP, CONTEXT = 64, 5, 2048
TINY_PROMPT, TINY_STEPS = 10, 24


def chat(user: str, system: str = "You are a helpful assistant.") -> str:
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


def long_text() -> str:
    """About 1,500 tokens of a ship's log that varies from entry to entry."""
    winds = ["north", "south-west", "east", "north-east", "west"]
    states = ["a calm sea", "long swells", "short, steep waves", "rain until noon", "fog over the water"]
    works = [
        "The crew mended two sails",
        "The cook baked bread for nine",
        "We oiled the winch and the blocks",
        "Anna took the noon sight with the old sextant",
        "Two of us painted the boat's bottom",
        "We caught three mackerel and let one go",
    ]
    places = [
        "the lighthouse of Skerry Point",
        "the outer bank",
        "a small island without a name",
        "the mouth of the river",
        "the old pier",
    ]
    entries = []
    for day in range(1, 30):
        entries.append(
            f"Day {day}. Wind from the {winds[day % 5]}, force {2 + day * 3 % 6}, with {states[day * 2 % 5]}. "
            f"{works[day * 5 % 6]}. At {6 + day % 11}:{day * 7 % 60:02d} we passed {places[day * 3 % 5]}, "
            f"{3 + day * 4 % 17} miles off; the log showed {day * 41 + 12} miles."
        )
    return "The log of the schooner Margit\n\n" + "\n".join(entries) + "\nDay 30. Wind from the"


PROMPTS = {
    "capital": "The capital of France is",
    "story": "Once upon a time, in a village between two rivers, there lived a clockmaker who",
    "definition": "Photosynthesis is the process by which",
    "list": "Three things one needs for baking bread:\n1.",
    "letter": "Dear Ms. Hanley,\n\nThank you for your letter of the 3rd. I am sorry to hear that",
    "dialogue": '"Did you lock the door?" she asked.\n"I thought you did," he said. "',
    "python": 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "c": "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n",
    "json": '{"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics", ',
    "sql": "SELECT customers.name, COUNT(orders.id)\nFROM customers\nJOIN orders ON",
    "html": '<ul>\n  <li><a href="/home">Home</a></li>\n  <li>',
    "chinese": "中国的首都是北京。法国的首都是",
    "chinese-long": "从前有一座山，山上有一座庙，庙里有一个老和尚在讲故事。他说：",
    "russian": "Столица России — Москва, а столица Франции —",
    "accents": "Le café était fermé, alors ils ont décidé d'aller à la plage où",
    "emoji": "Reactions: 😀 😃 😄 😁 😆 🎉 👍 ❤️ 🔥",
    "digits": "3.14159 26535 89793 23846 26433",
    "arithmetic": "12 + 30 = 42\n7 + 8 = 15\n25 + 17 = 42\n13 + 9 =",
    "dates": "2023-12-29, 2023-12-30, 2023-12-31, 2024-01-01,",
    "spaces": "a    b\n\n\n\tc   \t d\n      e",
    "one-token": "The",
    "repeat": "the cat sat on the mat, the cat sat on the mat, the cat sat on",
    "chat-capital": chat("What is the capital of France? Answer in one sentence."),
    "chat-poem": chat("Write a short poem about the sea."),
    "chat-code": chat("Write a Python function that reverses a string.", "You write short code."),
    "chat-greeting": chat("hello"),
    "long": long_text(),
}


@contextlib.contextmanager
def quiet():
    """llama.cpp writes to the stderr of the process itself. Gives the file where that goes meanwhile."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def generate(path: Path, prompts: dict[str, str], progress) -> dict:
    import llama_cpp
    import numpy as np

    with quiet():
        model = llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_threads=os.cpu_count(), logits_all=False, verbose=False)
    vocabulary, end = model.n_vocab(), model.token_eos()
    cases = []
    for number, (name, prompt) in enumerate(prompts.items(), 1):
        progress(f"{number} of {len(prompts)}: {name}")
        prompt_ids = model.tokenize(prompt.encode(), add_bos=True, special=True)  # the model's own flag decides
        model.reset()
        fed, steps = prompt_ids, []
        while len(steps) < STEPS:
            model.eval(fed)
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), (vocabulary,))
            best = np.argsort(-logits, kind="stable")[:TOP]
            steps.append([[int(i), round(float(logits[i]), 3)] for i in best])
            fed = [steps[-1][0][0]]
            if fed[0] == end:
                break
        tokens = [step[0][0] for step in steps]
        text = model.detokenize(tokens, prev_tokens=prompt_ids).decode("utf-8", errors="ignore")
        cases.append(
            {
                "name": name,
                "prompt": prompt,
                "prompt_ids": prompt_ids,
                "tokens": tokens,
                "text": text,
                "top": steps,
                "finish": "stop" if tokens[-1] == end else "length",
            }
        )
    return {
        "made_by": made_by(llama_cpp)
        | {"n_ctx": CONTEXT, "kv": "f16", "sampling": "arg-max of the logits, no penalties"},
        "model": {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
        "steps": STEPS,
        "end_id": end,
        "cases": cases,
    }


def greedy(model, prompt: list[int]) -> dict:
    """The best token after each step, and how far the second best is behind."""
    import numpy as np

    model.reset()
    fed, ids, gaps = prompt, [], []
    for _ in range(TINY_STEPS):
        model.eval(fed)
        logits = np.array(model.scores[model.n_tokens - 1], dtype=np.float64)
        second, best = np.partition(logits, -2)[-2:]
        fed = [int(logits.argmax())]
        ids += fed
        gaps.append(round(float(best - second), 5))
    return {"prompt_ids": prompt, "token_ids": ids, "top2_gap": gaps}


def generate_tiny(progress) -> dict:
    """The best logits after each of the tokens that the file's expected.json feeds."""
    import llama_cpp
    import numpy as np

    cases, refused = [], {}
    for path in sorted(TINY.glob("*/*.gguf")):
        name = str(path.relative_to(TINY))
        progress(name)
        token_ids = json.loads((path.parent / "expected.json").read_text())["token_ids"]
        scaling = json.loads((path.parent / "config.json").read_text()).get("rope_scaling") or {}
        with quiet() as log:
            try:
                # the limits of yarn are set by hand, since this llama.cpp passes over the file's
                model = llama_cpp.Llama(
                    str(path),
                    n_ctx=512,
                    logits_all=True,
                    type_k=0,
                    type_v=0,
                    flash_attn=False,
                    yarn_beta_fast=scaling.get("beta_fast", 32.0),
                    yarn_beta_slow=scaling.get("beta_slow", 1.0),
                )
            except ValueError:
                log.seek(0)
                refused[name] = re.search("error loading model: (.*)", log.read())[1]
                continue
            model.eval(token_ids)
            scores = np.array(model.scores[: len(token_ids)])
            case = {"name": name, "greedy": greedy(model, token_ids[:TINY_PROMPT])}
            model.close()
        best = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
        case["top"] = [[[int(i), round(float(row[i]), 4)] for i in ids] for row, ids in zip(scores, best, strict=True)]
        cases.append(case)
    return {"made_by": made_by(llama_cpp) | {"n_ctx": 512, "kv": "f32"}, "refused": refused, "cases": cases}


def made_by(llama_cpp) -> dict:
    return {
        "llama_cpp_python": llama_cpp.__version__,
        "llama_cpp": _version(llama_cpp),
        "cpu": llama_cpp.llama_print_system_info().decode(),
    }


def _version(llama_cpp) -> str:
    with contextlib.suppress(AttributeError):
        version = llama_cpp.llama_version
        version.restype = ctypes.c_char_p
        return version().decode()
    return "unknown"


def write(path: Path, document: dict) -> None:
    """One line a case."""
    head = {key: value for key, value in document.items() if key != "cases"}
    cases = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in document["cases"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(head, ensure_ascii=False)[:-1] + ', "cases": [\n' + cases + "\n]}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", choices=["smollm2", "tiny"], help="a model of tools/models.py, or tiny")
    parser.add_argument("--model", type=Path, help="a GGUF file")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if (arguments.name is None) == (arguments.model is None):
        parser.error("exactly one of a name and --model is needed")
    if arguments.model and not arguments.output:
        parser.error("--model needs --output")
    output = arguments.output or FIXTURES / f"{arguments.name}.json"
    if arguments.model and output.resolve().is_relative_to(FIXTURES):
        parser.error(f"--output {output} is among the committed fixtures, which hold nothing of other models")

    started = time.monotonic()

    def progress(line: str) -> None:
        print(f"[{time.monotonic() - started:5.1f} s] {line}", file=sys.stderr, flush=True)

    try:
        if arguments.name == "tiny":
            write(output, generate_tiny(progress))
        else:
            path = arguments.model or fetch(arguments.name)
            prompts = (
                PROMPTS
                if arguments.name
                else {name: prompt for name, prompt in PROMPTS.items() if not name.startswith("chat-")}
            )
            write(output, generate(path, prompts, progress))
    except ImportError as error:
        print(
            f"make_llama_fixtures: {error}; install llama-cpp-python into the environment of {sys.executable}",
            file=sys.stderr,
        )
        return 1
    except (FetchError, OSError) as error:
        print(f"make_llama_fixtures: {error}", file=sys.stderr)
        return 1
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What is measured: the models, the figures, and what each figure should reach against which peer."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tools"))
sys.path.insert(0, str(REPOSITORY / "python"))

from make_qwen3_shape import write_folder, write_gguf  # noqa: E402
from models import cache_folder, fetch  # noqa: E402


@dataclass(frozen=True)
class Model:
    """A model in the forms the engines read. `floats`: its weights are bfloat16, not quantised."""

    key: str
    label: str
    floats: bool = False
    family: str = ""  # the models of one family have the same shape


MODELS = [
    Model("smollm2", "SmolLM2-135M Q4_1", family="smollm2"),
    Model("gemma3", "Gemma 3 270M Q4_K_M", family="gemma3"),
    Model("qwen3-bf16", "Qwen3-0.6B shape BF16", floats=True, family="qwen3"),
    Model("qwen3-q8_0", "Qwen3-0.6B shape Q8_0", family="qwen3"),
    Model("qwen3-q4_k_m", "Qwen3-0.6B shape Q4_K_M", family="qwen3"),
]


@dataclass(frozen=True)
class Figure:
    """`more`: higher is better. Targets are ratios in our favour, except those of `load` and `memory`, which are the
    peer's figure over ours as well: at least 1 means no slower and no bigger."""

    key: str
    group: str  # figures of a group are measured in one process
    label: str
    unit: str
    more: bool = True
    llama_float: float | None = None
    llama: float | None = None
    llama_mean: float | None = None
    vllm_float: float | None = None
    vllm: float | None = None  # for the family's best format


FIGURES = [
    Figure("decode", "speed", "decode, 1 stream, 128 tokens", "tok/s", True, 1.05, 1.3, 1.4, 1.3, 1.3),
    Figure("prefill 512", "speed", "prefill, 512 tokens", "tok/s", True, 1.4, 2.5, 2.5, 1.05, 1.3),
    Figure("prefill 2000", "speed", "prefill, 2,000 tokens", "tok/s", True, 1.6, 2.5, 2.5, 1.05, 1.3),
    Figure("streams 4", "speed", "4 streams together", "tok/s"),
    Figure("streams 16", "speed", "16 streams together", "tok/s", True, 2.0, 2.0, 2.5, 1.2, 1.5),
    Figure("decode 8000", "long", "decode after 8,000 tokens", "tok/s", True, 1.3, 1.3),
    Figure("mixed", "serving", "mixed serving, 16 clients", "tok/s", True, 2.0, 2.0, 2.5, 1.2, 1.2),
    Figure("cached prefix", "prefix", "first token after a cached prefix", "s", False, 1.25, 1.25, None, 2.0, 2.0),
    Figure("load", "start", "process start to first token", "s", False, 1.0, 1.0),
    Figure("memory", "start", "peak memory", "MB", False, 1 / 1.05, 1 / 1.05),
]
GROUPS = list(dict.fromkeys(figure.group for figure in FIGURES))


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def qwen3_folder() -> Path:
    folder = cache_folder() / "qwen3-shape"
    if not (folder / "model.safetensors").exists():
        say("writing the Qwen3-0.6B-shaped model with random weights (1.2 GB)")
        write_folder(folder, 0, lambda line: None)
    return folder


def qwen3_file(kind: str, quantizer: Path | None) -> Path:
    """The shape as GGUF: "bf16", or what `quantizer` (llama-quantize) makes of that."""
    source = cache_folder() / "qwen3-shape-bf16.gguf"
    if not source.exists():
        say(f"writing {source.name}")
        write_gguf(source, qwen3_folder(), lambda line: None)
    path = cache_folder() / f"qwen3-shape-{kind}.gguf"
    if not path.exists():
        if quantizer is None:
            raise FileNotFoundError(f"{path.name} is made by llama.cpp's quantizer, which is not built")
        say(f"writing {path.name}")
        partial = path.with_suffix(".partial")
        subprocess.run([quantizer, source, partial, kind.upper()], check=True, capture_output=True)
        partial.rename(path)
    return path


def gguf_file(model: Model, quantizer: Path | None) -> Path:
    """The file that both llama.cpp and we are measured on."""
    if model.family == "qwen3":
        return qwen3_file(model.key.removeprefix("qwen3-"), quantizer)
    return fetch(model.key)

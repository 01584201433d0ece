"""The table and the plot of what run.py measured."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import gguf
from cases import FIGURES, MODELS, Figure, Model, gguf_file


def medians(samples: dict) -> dict[tuple[str, str, str], float]:
    """(model, engine, figure) -> median."""
    return {
        (model, engine, key): statistics.median(values)
        for model, engines in samples["values"].items()
        for engine, figures in engines.items()
        for key, values in figures.items()
    }


def ratio(figure: Figure, ours: float, theirs: float) -> float:
    return ours / theirs if figure.more else theirs / ours


def mark(value: float, target: float | None) -> str:
    return f"{value:.2f}" + ("" if target is None else " ✓" if value >= target else f" (of {target:.2f})")


def llama_rows(found: dict, isa: str | None) -> list[str]:
    """`isa`: both were held to it; the targets are for the best of the machine, and 1 for others."""
    rows = []
    for figure in FIGURES:
        cells, ratios = [], []
        for model in MODELS:
            ours, theirs = (found.get((model.key, engine, figure.key)) for engine in ("ours", "llama"))
            if ours is None or theirs is None:
                cells.append("–")
                continue
            ratios.append(ratio(figure, ours, theirs))
            target = figure.llama_float if model.floats else figure.llama
            if isa and target is not None:
                target = min(target, 1.0)
            digits = 3 if figure.unit == "s" else 0 if ours >= 20 else 1
            cells.append(f"{mark(ratios[-1], target)} <br> {ours:.{digits}f} / {theirs:.{digits}f}")
        if not ratios:
            continue
        mean = mark(math.exp(statistics.fmean(map(math.log, ratios))), None if isa else figure.llama_mean)
        rows.append(f"| {figure.label}, {figure.unit} | " + " | ".join(cells) + f" | {mean} |")
    return rows


def vllm_rows(found: dict) -> list[str]:
    """Its bfloat16 against our bfloat16 and against our best format of the shape."""
    rows = []
    for figure in FIGURES:
        theirs = found.get(("qwen3-bf16", "vllm", figure.key))
        ours = found.get(("qwen3-bf16", "ours", figure.key))
        if theirs is None or ours is None:
            continue
        forms = [found.get((model.key, "ours", figure.key)) for model in MODELS if model.family == "qwen3"]
        best = max(ratio(figure, form, theirs) for form in forms if form is not None)
        plain = mark(ratio(figure, ours, theirs), figure.vllm_float)
        rows.append(f"| {figure.label}, {figure.unit} | {theirs:.3g} | {plain} | {mark(best, figure.vllm)} |")
    return rows


def work(model: Model) -> tuple[float, float]:
    """Bytes read for one decode step, operations for one prefill token (of the matrices)."""
    tensors = gguf.GGUFReader(gguf_file(model, None)).tensors
    tied = not any(tensor.name == "output.weight" for tensor in tensors)
    matrices = [tensor for tensor in tensors if len(tensor.shape) == 2]
    embedding = next(tensor for tensor in matrices if tensor.name == "token_embd.weight")
    step = sum(tensor.n_bytes for tensor in matrices) - (0 if tied else embedding.n_bytes)
    inner = [tensor for tensor in matrices if tensor.name not in ("token_embd.weight", "output.weight")]
    return float(step), 2.0 * sum(float(tensor.n_elements) for tensor in inner)


def _share(work: float, rates: list[float], limits: list[float]) -> str:
    """Of limits, in 1e9 a second, that were measured with the rates at which `work` was done."""
    share = statistics.median(work * rate / 1e9 / limit for rate, limit in zip(rates, limits, strict=False))
    return f"{share:.0%} <br> of {statistics.median(limits):.0f}"


def limit_rows(samples: dict) -> list[str]:
    """Shares of the limits that were measured beside each run."""
    rows = []
    for model in MODELS:
        runs = samples["values"].get(model.key, {}).get("ours", {})
        if "read" not in runs:
            continue
        step, operations = work(model)
        peak = "bf16" if model.floats else "int8"

        read = _share(step, runs["decode"], runs["read"]) + " GB/s"
        arithmetic = "–"
        if all(runs[peak]):
            arithmetic = _share(operations, runs["prefill 512"], runs[peak]) + " Gop/s"
        rows.append(f"| {model.label} | {read} | {arithmetic} |")
    if rows:
        rows[:0] = ["| model | decode, of the read rate | prefill of 512, of the arithmetic peak |", "|---|---|---|"]
    return rows


def plot(found: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    def measured(model: Model, figure: Figure) -> bool:
        return all((model.key, engine, figure.key) in found for engine in ("ours", "llama"))

    shown = [figure for figure in FIGURES if any(measured(model, figure) for model in MODELS)]
    if not shown:
        return
    canvas, axes = pyplot.subplots(figsize=(11, 5))
    for number, model in enumerate(MODELS):
        at, heights = [], []
        for position, figure in enumerate(shown):
            if measured(model, figure):
                at.append(position + 0.16 * (number - 2))
                heights.append(ratio(figure, *(found[(model.key, engine, figure.key)] for engine in ("ours", "llama"))))
        axes.bar(at, heights, 0.15, label=model.label)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log", base=2)
    axes.set_xticks(range(len(shown)), [figure.label.replace(", ", ",\n") for figure in shown], fontsize=7)
    axes.set_ylabel("ratio to llama.cpp, above 1 in our favour")
    axes.legend(fontsize=7)
    canvas.tight_layout()
    canvas.savefig(path, dpi=120)


def write(samples: dict, folder: Path, threads: int, isa: str | None) -> None:
    found = medians(samples)
    runs = [len(v) for engines in samples["values"].values() for figures in engines.values() for v in figures.values()]
    if not runs:
        print("nothing has been measured")
        return
    conditions = f"{threads} threads" + (f", instructions up to {isa}" if isa else "")
    lines = [f"Medians of {min(runs)} to {max(runs)} alternating runs, {conditions}.", ""]
    lines += ["| ratio to llama.cpp (ours / theirs) | " + " | ".join(model.label for model in MODELS) + " | mean |"]
    lines += ["|---|" + "---|" * (len(MODELS) + 1), *llama_rows(found, isa), ""]
    if rows := vllm_rows(found):
        lines += ["| Qwen3-0.6B shape | vLLM bf16 | our BF16 against it | our best format against it |"]
        lines += ["|---|---|---|---|", *rows, ""]
    lines += [] if isa else limit_rows(samples)  # the limits are those of all instructions
    if samples["busy"]:
        lines += ["", f"The machine was not idle for {len(samples['busy'])} measurements: measure them again."]
    text = "\n".join(lines)
    print(text)
    (folder / "table.md").write_text(text + "\n")
    (folder / "medians.json").write_text(
        json.dumps([{"model": m, "engine": e, "figure": f, "median": v} for (m, e, f), v in found.items()], indent=1)
    )
    plot(found, folder / "ratios.png")

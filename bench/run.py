#!/usr/bin/env python3
"""Measures this engine and, where it is installed, llama.cpp on the same file in alternating runs.

    python bench/run.py [--model PATH] [--peer llama [--llama-python PYTHON]]

Each run is a process of its own: load until the first token, prefill of 512 tokens, decode of 128, 4, 8 and 16 streams
of 16 + 64 tokens, peak memory over the interpreter. Printed are medians and ratios; a ratio above 1 is in our favour.
llama.cpp is what `import llama_cpp` gives in the interpreter of --llama-python or $LLAMA_CPP_PYTHON.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tools"))
from models import FetchError, fetch  # noqa: E402

# figure, label, unit, factor, whether more is better
FIGURES = [
    ("prefill", "prefill, 512 tokens", "tokens/s", 1, True),
    ("decode", "decode, 1 stream", "tokens/s", 1, True),
    ("streams 4", "4 streams, together", "tokens/s", 1, True),
    ("streams 8", "8 streams, together", "tokens/s", 1, True),
    ("streams 16", "16 streams, together", "tokens/s", 1, True),
    ("load", "load to first token", "s", 1, False),
    ("memory", "peak memory", "MB", 1e-6, False),
]
BUSY = 0.1  # of all cores


class BenchError(Exception):
    """One sentence."""


def busy_share(seconds: float = 1.0) -> float:
    """The share of the machine's cores that works for others just now."""

    def times() -> tuple[int, int]:
        with open("/proc/stat", encoding="ascii") as file:
            fields = list(map(int, file.readline().split()[1:]))
        return sum(fields[:8]), fields[3] + fields[4]

    total, idle = times()
    time.sleep(seconds)
    total_after, idle_after = times()
    return 1 - (idle_after - idle) / max(total_after - total, 1)


def warn_when_busy(when: str) -> bool:
    share, load = busy_share(), os.getloadavg()[0]
    if share > BUSY:
        print(
            f"warning: {when} other processes use {share:.0%} of this machine (load {load:.1f}); "
            "engines suffer from that unequally, so these figures and their ratios mean little",
            file=sys.stderr,
        )
    return share > BUSY


def run_worker(python: str, script: str, model: Path, threads: int) -> dict:
    command = [python, str(REPOSITORY / "bench" / script), str(model), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY / "bench")
    if done.returncode != 0 or not done.stdout.strip():
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise BenchError(f"{script} failed on {model}: {lines[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def find_llama(python: str | None) -> str | None:
    for candidate in filter(None, (python, os.environ.get("LLAMA_CPP_PYTHON"), sys.executable)):
        found = shutil.which(candidate)
        if found and subprocess.run([found, "-c", "import llama_cpp, numpy"], capture_output=True).returncode == 0:
            return found
    return None


def table(runs: dict[str, list[dict]]) -> str:
    ours, *peers = runs
    width = max(34, *(len(name) + 3 for name in runs))
    lines = [" " * 22 + "".join(name.rjust(width) for name in runs) + ("   ratio" if peers else "")]
    for key, label, unit, factor, more in FIGURES:
        medians, cells = [], ""
        for results in runs.values():
            values = sorted(result[key] * factor for result in results)
            median = statistics.median(values)
            medians.append(median)
            digits = 2 if values[0] < 10 else 0
            spread = f"({values[0]:.{digits}f}-{values[-1]:.{digits}f})" if len(values) > 1 else ""
            cells += f"{median:.{digits}f} {unit} {spread}".rjust(width)
        ratio = ""
        if peers:
            ratio = f"{medians[0] / medians[1] if more else medians[1] / medians[0]:8.2f}"
        lines.append(f"{label:<22}{cells}{ratio}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="GGUF file or folder with safetensors; SmolLM2 when not given")
    parser.add_argument("--peer-model", type=Path, metavar="PATH", help="the peer's file, where it needs another form")
    parser.add_argument("--peer", choices=["llama", "none"], help="default: llama where it is installed")
    parser.add_argument("--llama-python", metavar="PYTHON", help="interpreter in which llama_cpp can be imported")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure of every run")
    arguments = parser.parse_args()
    try:
        model = (arguments.model or fetch("smollm2")).resolve()
        if not model.exists():
            raise BenchError(f"{model} does not exist")
        workers = {"ours": (sys.executable, "worker_ours.py", model)}
        llama = None if arguments.peer == "none" else find_llama(arguments.llama_python)
        if llama:
            workers["llama"] = (llama, "worker_llama.py", (arguments.peer_model or model).resolve())
        elif arguments.peer == "llama":
            raise BenchError("llama_cpp cannot be imported; name an interpreter that can with --llama-python")
        elif arguments.peer is None:
            print("llama.cpp is not installed where --llama-python or $LLAMA_CPP_PYTHON points: ours alone")
        busy = warn_when_busy("before the runs")
        figures: dict[str, list[dict]] = {name: [] for name in workers}
        names = {}
        for number in range(arguments.runs):
            for name, (python, script, path) in workers.items():
                print(f"run {number + 1} of {arguments.runs}: {name}", file=sys.stderr, flush=True)
                result = run_worker(python, script, path, arguments.threads)
                figures[name].append(result["figures"])
                names[name] = result["engine"]
        busy |= warn_when_busy("after the runs")
        runs = {names[name]: results for name, results in figures.items()}
        print(
            f"{model.name}, {arguments.threads} threads, medians of {arguments.runs} alternating runs (lowest-highest)"
        )
        print(table(runs))
        if busy:
            print("the machine was not idle: measure again before believing this")
        if arguments.json:
            arguments.json.write_text(json.dumps({"model": model.name, "busy": busy, "runs": runs}, indent=1) + "\n")
    except (BenchError, FetchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

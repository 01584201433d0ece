#!/usr/bin/env python3
"""Measures this engine beside llama.cpp (and, with PEER=vllm or --peer vllm, vLLM) on the same models, alternating.

    python bench/run.py [--models KEY,...] [--groups speed,long,serving,prefix,start] [--runs 5] [--isa avx2] [--fresh]

Every measurement is kept in bench/results/samples.json as it is made, so an interrupted run goes on where it stopped;
--fresh forgets them. At the end the medians, ratios and shares of the machine's limit are printed as a Markdown table,
with the JSON and a plot beside the samples. llama.cpp is built from its source package at the first run. With --isa
neither uses newer instructions than those; the results are in a folder of that name.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import peers
import report
from cases import FIGURES, GROUPS, MODELS, REPOSITORY, Model, gguf_file, qwen3_folder, say
from measure_llama import Llama

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PROGRAMS = REPOSITORY / "build" / "bench" / "native"
BUSY = 0.1  # of all cores


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


class Samples:
    """model / engine / figure -> a value for each run, kept on disk."""

    def __init__(self, path: Path, fresh: bool):
        self._path = path
        self.data: dict = {"busy": [], "values": {}}
        if path.exists() and not fresh:
            self.data = json.loads(path.read_text())

    def count(self, model: str, engine: str, group: str) -> int:
        """Complete runs of a group."""
        values = self.data["values"].get(model, {}).get(engine, {})
        figures = [figure.key for figure in FIGURES if figure.group == group]
        if engine == "vllm" and group == "start":
            return sys.maxsize
        return min(len(values.get(key, [])) for key in figures)

    def add(self, model: str, engine: str, figures: dict) -> None:
        values = self.data["values"].setdefault(model, {}).setdefault(engine, {})
        for key, value in figures.items():
            values.setdefault(key, []).append(value)
        self.save()

    def save(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self.data, indent=1) + "\n")
        partial.rename(self._path)


def run_program(command: list, **environment: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=HERE, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise peers.PeerError(f"{' '.join(map(str, command[:3]))}: {lines[-1]}")
    return done


# A program's memory counts from that of the process it was started from, so this starts it from a small one.
STARTER = """
import os, resource, subprocess, sys, time
begin = time.perf_counter()
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(status, time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def start(command: list) -> dict:
    """How long a program that computes one token runs, in seconds, and how much memory it takes, in MiB."""
    answer = run_program([sys.executable, "-S", "-c", STARTER, *command]).stdout.split()
    if answer[0] != "0":
        raise peers.PeerError(f"{command[0]} ended with status {answer[0]}")
    return {"load": float(answer[1]), "memory": float(answer[2])}


class Engines:
    def __init__(self, names: list[str], threads: int, isa: str | None):
        self.threads = threads
        self.llama_programs = peers.llama(isa) if "llama" in names else None
        self.llama = Llama(self.llama_programs) if self.llama_programs else None
        self.vllm = peers.vllm() if "vllm" in names else None

    def file(self, model: Model) -> Path:
        return gguf_file(model, self.llama_programs / "llama-quantize" if self.llama_programs else None)

    def measure(self, engine: str, model: Model, group: str, run: int) -> dict:
        if engine == "vllm":
            # It reads safetensors folders; the GGUF forms of a shape are held against its bfloat16.
            command = [self.vllm, "measure_vllm.py", qwen3_folder(), group, "--threads", self.threads, "--seed", run]
            return json.loads(run_program(command).stdout.splitlines()[-1])
        path = self.file(model)
        if engine == "llama":
            assert self.llama is not None
            if group == "start":
                return start(self.llama.start_command(path, self.threads))
            if group in ("serving", "prefix"):
                return self.llama.served(group, path, self.threads, run)
            return getattr(self.llama, group)(path, self.threads, run)
        if group == "start":
            return start([PROGRAMS / "first_token", path])
        command = [sys.executable, "measure_ours.py", path, group, "--threads", self.threads, "--seed", run]
        return json.loads(run_program(command).stdout.splitlines()[-1])


def measure_all(arguments, samples: Samples) -> None:
    names = ["ours", *(name for name in arguments.peer.split(",") if name != "none")]
    build = ["cmake", "--build", REPOSITORY / "build", "--target", "limits", "first_token"]
    run_program(build)
    engines = Engines(names, arguments.threads, arguments.isa)
    wanted = [model for model in MODELS if not arguments.models or model.key in arguments.models.split(",")]
    for model in wanted:
        engines.file(model)
    # Run by run, so that what disturbs the machine for a while does not fall on one model, and an unfinished table has
    # all its rows.
    groups = [group for group in GROUPS if group in arguments.groups.split(",")]
    for run, model, group, engine in itertools.product(range(arguments.runs), wanted, groups, names):
        if engine == "vllm" and (not model.floats or group == "long"):
            continue
        if samples.count(model.key, engine, group) > run:
            continue
        share = busy_share()
        if share > BUSY:
            say(f"warning: other processes use {share:.0%} of this machine; these figures mean little")
            samples.data["busy"].append(f"{model.key} {group} {engine}: {share:.0%}")
        say(f"{model.label}, {group}, run {run + 1} of {arguments.runs}: {engine}")
        samples.add(model.key, engine, engines.measure(engine, model, group, run))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", help="comma-separated: " + ", ".join(model.key for model in MODELS))
    parser.add_argument("--groups", default=",".join(GROUPS), help="comma-separated: " + ", ".join(GROUPS))
    parser.add_argument("--peer", default="llama", help="llama, vllm, both with a comma, or none")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--isa", choices=peers.LLAMA_FLAGS, help="the newest instructions that both may use")
    parser.add_argument("--fresh", action="store_true", help="forget the measurements of earlier runs")
    parser.add_argument("--report", action="store_true", help="measure nothing, print what there is")
    arguments = parser.parse_args()
    if extra := os.environ.get("PEER"):
        arguments.peer = ",".join(dict.fromkeys([*arguments.peer.split(","), *extra.split(",")]))
    results = RESULTS
    if arguments.isa:
        results /= arguments.isa
        os.environ["VLLM_CPU_ISA"] = arguments.isa
    results.mkdir(parents=True, exist_ok=True)
    samples = Samples(results / "samples.json", arguments.fresh)
    try:
        if not arguments.report:
            measure_all(arguments, samples)
    except (peers.PeerError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    report.write(samples.data, results, arguments.threads, arguments.isa)
    return 0


if __name__ == "__main__":
    sys.exit(main())

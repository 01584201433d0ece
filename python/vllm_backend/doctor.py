"""python -m vllm_backend doctor [MODEL]: what this installation is, and what would happen if MODEL were loaded.

Nothing is loaded: the library plans it from the headers of the files. The exit status is 0 when a load would succeed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from vllm_backend import command_line, direct
from vllm_backend.ending import StartError
from vllm_backend.errors import BackendError
from vllm_backend.lifecycle import Loaded, LoadError, load_engine
from vllm_backend.native import Library, LibraryError, open_library
from vllm_backend.options import BY_KEY, Effective
from vllm_backend.strict_json import shown

LABEL = 12  # columns
VARIABLES = (
    "VLLM_CPP_LIBRARY",
    "VLLM_CPU_ISA",
    "VLLM_VULKAN_FEATURES",
    "VT_ENABLE_JUMP_FORWARD",
    "VLLM_LOG_LEVEL",
    "VLLM_STEP_TRACE",
    "LOCALAI_GRPC_AUTH_TOKEN",
    "LOCALAI_BACKEND_PARENT_WATCH",
    "LOCALAI_BACKEND_PARENT_WATCH_INTERVAL",
)
SECRET = ("LOCALAI_GRPC_AUTH_TOKEN",)
PCI_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
USUAL_CONTEXT = 4096  # tokens; what the host gives a model without context_size


def say(label: str, text: str) -> None:
    print(f"{label:{LABEL}}{text}", flush=True)


def size(count: float) -> str:
    """Bytes for people, in powers of ten as everywhere in this project."""
    if count >= 1e9:
        return f"{count / 1e9:.2f} GB"
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


# ---- The machine ----


def accelerators(root: Path = Path("/")) -> Iterator[str]:
    """Accelerators that the system shows, whether or not a device of ours can use them."""
    nvidia = False
    for file in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        with contextlib.suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith("Model:"):
                    nvidia = True
                    yield f"NVIDIA GPU ({line.split(':', 1)[1].strip()})"
    if not nvidia and (root / "dev/nvidiactl").exists():
        nvidia = True
        yield "NVIDIA GPU"
    if (root / "etc/nv_tegra_release").exists():
        yield "NVIDIA Jetson"
    for file in sorted(root.glob("sys/class/drm/renderD*/device/vendor")):
        with contextlib.suppress(OSError):
            vendor = PCI_VENDORS.get(file.read_text(encoding="ascii").strip(), "unknown")
            if not (vendor == "NVIDIA" and nvidia):
                yield f"{vendor} GPU ({file.parts[-3]})"


def show_machine(facts: Mapping[str, Any]) -> None:
    cores, threads = int(facts["physical_cores"]), int(facts["logical_cores"])
    name = facts["processor"] or "unknown processor"
    say("machine", f"{name}, {plural(cores, 'core')}, {plural(threads, 'hardware thread')}, {platform.machine()}")
    sets = facts["instruction_sets"]
    say("ISA", f"{facts['instruction_set']} (the machine has {', '.join(sets)})")
    say("memory", f"{size(facts['memory_available'])} free of {size(facts['memory_total'])}")
    seen = list(accelerators())
    for index, device in enumerate(facts["devices"]):
        state = device.get("description", "available") if device["available"] else f"not available: {device['reason']}"
        say("" if index else "devices", f"{device['name']}: {state}")
    say("", f"the system shows {', '.join(seen) if seen else 'no accelerator'}")


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def show_installation(library: Library) -> None:
    say("library", f"{library.path}, version {library.version()}, ABI {library.abi}")
    packages = ", ".join(f"{name} {version_of(name)}" for name in ("grpcio", "protobuf", "cffi"))
    say("python", f"{platform.python_version()} at {sys.executable}, {packages}")
    set_ones = [name for name in VARIABLES if os.environ.get(name)]
    values = [f"{name}={'(set)' if name in SECRET else os.environ[name]}" for name in set_ones]
    say("environment", ", ".join(values) if values else "nothing of ours is set")


# ---- The model ----


def show_model(facts: Mapping[str, Any]) -> None:
    say("model", str(facts["model"]))
    say("", f"{facts['architecture']}, {facts['num_tensors']} tensors, fingerprint {facts['fingerprint']}")
    say("weights", str(facts["formats"]))
    say("runs on", str(facts["device"]))
    say("chat", f"tool calls as {facts['tool_parser']}, thoughts as {facts['reasoning_parser']}")


def show_memory(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    kv, state = float(plan["kv_bytes_per_token"]), float(plan["state_bytes_per_sequence"])
    needed = sum(float(plan[part]) for part in ("weights", "workspace", "states", "kv_cache"))
    say("needs", f"{size(needed)} of the {size(plan['available'])} that are free")
    say("", f"weights {size(plan['weights'])}, activations {size(plan['workspace'])}")
    tokens = int(plan["kv_tokens"])
    pool = f"KV pool {size(plan['kv_cache'])}: {plural(tokens, 'token')}, {size(kv)} a token" if kv else "no KV cache"
    say("", pool + (f"; recurrent state {size(state)} a sequence" if state else ""))
    context, sequences = int(facts["max_model_len"]), int(facts["max_num_seqs"])
    say(
        "fits",
        f"context {context} (the model was made for {plan['model_context']}), {plural(sequences, 'sequence')} at once",
    )
    if not kv:
        return
    full = f"{plural(min(tokens // context, sequences), 'sequence')} of {context} tokens"
    usual = f", or {min(tokens // USUAL_CONTEXT, sequences)} of {USUAL_CONTEXT}" if context > USUAL_CONTEXT else ""
    say("", full + usual)
    room = float(plan["budget"]) - needed + float(plan["kv_cache"])
    most = min(int(room / kv), int(plan["model_context"]))
    if most > context:
        say("", f"memory allows one sequence a context of {most}")


def source_of(setting: Effective, chosen: Mapping[str, str]) -> str:
    """Who settled a setting. `chosen` has the library's reasons for what it chose by itself."""
    if setting.source:
        place = setting.source
        if place in ("context_size", "max_model_len", "model configuration"):
            place = f"host field {place}"
        return place if setting.kept else f"{place} has {shown(setting.asked)}"
    if setting.name in chosen:
        return f"automatic: {chosen[setting.name]}"
    default = BY_KEY[setting.name].default
    if setting.value in (None, "") or str(setting.value) == default or (default == "off" and not setting.value):
        return "default"
    return "automatic" if default in ("0", "auto") else f"automatic: {default}"


def show_settings(model: Loaded, plan: Mapping[str, Any]) -> None:
    for index, setting in enumerate(model.found.effective(model.facts)):
        default = BY_KEY[setting.name].default
        value = default if setting.value in (None, "") else shown(setting.value)
        say("" if index else "settings", f"{setting.name} = {value} ({source_of(setting, plan['chosen'])})")


def main(arguments: list[str]) -> int:
    parser = command_line.parser_for(
        "doctor", "Says what this installation is, and what would happen if MODEL were loaded.", model_needed=False
    )
    request = command_line.model_options(parser.parse_args(arguments))
    try:
        library = open_library()
        show_installation(library)
        direct.be_quiet()
        show_machine(library.machine())
    except (LibraryError, BackendError) as error:
        raise StartError(str(error)) from None
    if request is None:
        return 0
    try:
        model = load_engine(request, plan_only=True)
    except LoadError as error:
        raise StartError(f"the model cannot be loaded: {error}") from None
    try:
        plan = model.engine.query({"query": "plan"})
        show_model(model.facts)
        show_memory(plan, model.facts)
        show_settings(model, plan)
    finally:
        model.engine.free()
    say("verdict", "the model can be loaded")
    return 0

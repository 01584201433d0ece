"""The settings of a model: one table of keys, and their reading from the three places the host puts them.

A key may come from a typed field of ModelOptions, from its `options` list and from the YAML's engine_args; the later
one in this list wins. `python -m vllm_backend.options` prints the README's table.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_backend import paths
from vllm_backend.strict_json import MAX_SHOWN, parse_json, shown, to_json

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_WARNINGS = 16  # unknown keys named one by one

TRUE = frozenset(("1", "t", "true"))
FALSE = frozenset(("0", "f", "false"))


class OptionError(Exception):
    """A setting that cannot be used; the text is one sentence that names key and value."""


class Unusable(Exception):
    """What a value of a type has to be, in words."""


# ---- Types: each turns a JSON value, or the text of an option, into what the engine gets ----


def integer(low: int, high: int = INT32_MAX) -> Callable[[object], int]:
    needed = f"a whole number from {low}" if high >= INT32_MAX else f"a whole number from {low} to {high}"

    def read(value: object) -> int:
        if isinstance(value, str):
            try:
                value = parse_json(value)
            except ValueError:
                raise Unusable(needed) from None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Unusable(needed)
        return value

    return read


def fraction(value: object) -> float:
    needed = "a number above 0 and up to 1"
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise Unusable(needed) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 < value <= 1:
        raise Unusable(needed)
    return float(value)


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise Unusable("true or false")


def tri_state(value: object) -> int:
    """1 on, 2 off; the ABI's 0 defers and is what an absent key means."""
    return 1 if boolean(value) else 2


def flag(value: object) -> int:
    return int(boolean(value))


def text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise Unusable("a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Unusable("a text of valid characters") from None
    return value.strip()


def one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in words:
            raise Unusable(f"one of {', '.join(words)}")
        return word

    return read


def document(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError as error:
            raise Unusable(f"a JSON object ({error})") from None
    if not isinstance(value, dict):
        raise Unusable("a JSON object")
    return value


# ---- The table ----

PARAM = "param"  # a field of vllm_model_params
SETTING = "setting"  # a key of vllm_ext_load's settings
VIDEO = "video"  # the video engine, which this build does not have


@dataclass(frozen=True)
class Option:
    """One key of engine_args and options."""

    name: str
    type: str  # for people
    default: str  # for people
    help: str
    read: Callable[[object], Any] = text
    aliases: tuple[str, ...] = ()
    target: str = PARAM
    field: str = ""  # name at the target, where it differs from the key
    fact: str = ""  # name in what the engine says of itself, where it differs from the key

    @property
    def destination(self) -> str:
        return self.field or self.name


TABLE: tuple[Option, ...] = (
    Option("max_model_len", "integer", "MaxModelLen, else context_size",
           "Longest sequence, prompt and answer together, in tokens. Set here, it is refused when the KV pool cannot "
           "hold it; from the other two places it is lowered with a warning.", integer(1)),
    Option("block_size", "integer", "32", "Tokens in a KV block; a multiple of 16.", integer(1)),
    Option("num_blocks", "integer", "0", "KV blocks; num_blocks x block_size tokens fit. 0: from the memory there is.",
           integer(0)),
    Option("max_num_seqs", "integer", "8", "Most sequences that run at once.", integer(1)),
    Option("max_num_batched_tokens", "integer", "0",
           "Tokens in one engine step. 0: 2048 for dense models, more for mixtures of experts.", integer(0)),
    Option("scheduling_policy", "fcfs, priority, lpm", "fcfs",
           "Who runs first: arrival, priority number, or the longest cached prefix.",
           one_of("fcfs", "priority", "lpm"), ("schedule_policy",)),
    Option("enable_prefix_caching", "boolean", "by model",
           "Reuse KV blocks of equal prompt beginnings. Unset: on for attention models, off for hybrids, where it "
           "takes memory for copies of the recurrent state.",
           tri_state, ("enable_radix_attention",), fact="prefix_caching"),
    Option("enable_jump_forward", "boolean", "off", "Emit what a constraint forces without running the model.",
           tri_state, fact="jump_forward"),
    Option("tool_parser", "text", "from the chat template", "Name of the tool-call dialect.", text,
           ("tool_call_parser",)),
    Option("reasoning_parser", "text", "from the chat template", "Name of the thinking dialect; none: no split."),
    Option("tokenizer_config", "path", "the model's own",
           "File the chat template is read from; a relative path is looked for under the models directory.", text,
           ("tokenizer_config_path",), field="tokenizer_config_path"),
    Option("speculative_config", "JSON object", "none",
           "Speculative decoding: method and its numbers; this version has none and refuses the load. A draft model is "
           "looked for as given, by its last part under the models directory, and as a whole under it.", document),
    Option("kv_transfer_config", "JSON object", "none",
           "KV connector; this version has none and refuses the load.", document),
    Option("offload_config", "JSON object", "none",
           "Where weights are kept; without effect on a CPU, where a warning says so.", document),
    Option("limit_mm_per_prompt", "JSON object", "none", "Most media of each kind in a prompt.", document),
    Option("language_model_only", "boolean", "false", "No media at all.", flag),
    Option("gpu_memory_utilization", "number", "0.92",
           "Most of the free device memory that weights and KV pool may take; a pool sized from memory is half of what "
           "the weights leave of it, or one full context.", fraction),
    Option("kv_cache_memory_bytes", "integer", "0", "Bytes of the KV pool, where num_blocks is not set. 0: unset.",
           integer(0, INT64_MAX)),
    Option("threads", "integer", "Threads, else 0", "Threads of the CPU device. 0: one for each physical core.",
           integer(0), target=SETTING),
    Option("kv_cache_dtype", "auto, bf16, f32, q8_0", "auto",
           "Number format of the KV cache; auto is bf16. q8_0 is int8 with a scale for each 32 values of a head: about "
           "half the memory of bf16, but slower prefill of long contexts; not on Vulkan.",
           one_of("auto", "bf16", "f32", "q8_0"), target=SETTING),
    Option("device", "text", "auto",
           "Device that runs the model: cpu, vulkan or vulkan:N, the Nth one of Vulkan from 0, with GPUs of their own "
           "memory first and drivers on the CPU last. auto: the first GPU if it opens, has room for the weights and "
           "computes as the CPU does, else the CPU.", text, target=SETTING),
    *(
        Option(name, "", "", "", text, aliases, VIDEO)
        for name, aliases in (
            ("video_encoder", ()), ("video_tokenizer", ()), ("video_vae", ()), ("video_vae_config", ()),
            ("audio_vae", ()), ("audio_vae_config", ()), ("video_prompt_embeds", ()), ("video_partition", ()),
            ("video_device", ()), ("video_dequant_bf16", ()), ("video_fp4_resident", ()), ("video_width", ()),
            ("video_height", ()), ("video_num_frames", ()), ("video_steps", ()), ("video_workdir", ()),
            ("video_crf", ()), ("ffmpeg", ("ffmpeg_path",)),
        )
    ),
)  # fmt: skip

BY_KEY: dict[str, Option] = {key: option for option in TABLE for key in (option.name, *option.aliases)}

# Settings that an environment variable of the library wins over.
ENVIRONMENT = {"enable_jump_forward": "VT_ENABLE_JUMP_FORWARD"}

# Typed fields of ModelOptions that a user sets on purpose and that this backend does not act on, with the value that
# means unset or harmless.
IGNORED_FIELDS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("Quantization", ("",)), ("DType", ("", "auto")), ("LoadFormat", ("", "auto")), ("Tokenizer", ("",)),
    ("MMProj", ("",)), ("DraftModel", ("",)), ("TensorParallelSize", (0, 1)), ("RopeScaling", ("", "none")),
    ("RopeFreqBase", (0.0,)), ("RopeFreqScale", (0.0, 1.0)), ("CacheTypeKey", ("",)), ("CacheTypeValue", ("",)),
    ("Overrides", ()), ("Embeddings", (False,)), ("Reranking", (False,)), ("EnableScore", (False,)),
    ("LimitImagePerPrompt", (0,)), ("LimitVideoPerPrompt", (0,)), ("LimitAudioPerPrompt", (0,)),
)  # fmt: skip

# Fields that would change every answer; to ignore them would be wrong.
REFUSED_FIELDS: tuple[str, ...] = ("LoraAdapter", "LoraAdapters", "LoraBase")


@dataclass(frozen=True)
class Effective:
    """A setting as it holds."""

    name: str
    value: Any  # None: unset, and the engine does not say
    source: str  # the place it came from; empty: nobody set it
    asked: Any  # what the source says

    @property
    def kept(self) -> bool:
        return bool(self.value == self.asked)


@dataclass
class ModelSettings:
    """What the engine is loaded with."""

    path: str
    params: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, tuple[str, Any]] = field(default_factory=dict)  # key: place it came from, value
    warnings: list[str] = field(default_factory=list)

    def effective(self, facts: Mapping[str, Any]) -> list[Effective]:
        """Every setting of a text model. `facts` is what the engine says of itself; it counts where both speak."""
        out = []
        for option in TABLE:
            if option.target == VIDEO:
                continue
            source, asked = self.sources.get(option.name, ("", None))
            if option.read is tri_state and asked is not None:
                asked = asked == 1
            value = facts.get(option.fact or option.name, asked)
            variable = ENVIRONMENT.get(option.name, "")
            if variable and os.environ.get(variable):
                source, asked = f"environment {variable}", value
            out.append(Effective(option.name, value, source, asked))
        return out

    def line(self, facts: Mapping[str, Any]) -> str:
        """The effective settings on one line, those that somebody set first."""
        settings = self.effective(facts)
        parts = [f"model={self.path}"]
        for setting in sorted((s for s in settings if s.source), key=lambda s: s.name):
            note = setting.source if setting.kept else f"{setting.source} has {shown(setting.asked)}"
            parts.append(f"{setting.name}={shown(setting.value)} ({note})")
        said = {"model", "chat_template"} | {BY_KEY[s.name].fact or s.name for s in settings if s.source}
        parts += [f"{name}={shown(value)}" for name, value in facts.items() if name not in said]
        return "settings: " + " ".join(parts)


def normalised(key: str) -> str:
    return key.strip().removeprefix("--").replace("-", "_").lower()


def split_option(entry: str) -> tuple[str, str | None]:
    """`key:value`, `--key:value`, `--key=value` or a bare `--flag`; a bare key has the value None."""
    entry = entry.strip()
    ends = [at for at in (entry.find(mark) for mark in (":=" if entry.startswith("--") else ":")) if at >= 0]
    if not ends:
        return normalised(entry), None
    return normalised(entry[: min(ends)]), entry[min(ends) + 1 :]


def from_options(entries: Iterable[str]) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = []
    for entry in entries:
        key, value = split_option(entry)
        if key:
            pairs.append((key, True if value is None else value))
    return pairs


def from_engine_args(source: str) -> list[tuple[str, object]]:
    if not source.strip():
        return []
    try:
        arguments = parse_json(source)
    except ValueError as error:
        raise OptionError(f"engine_args is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise OptionError(f"engine_args is {shown(arguments)}; it must be a JSON object")
    return [(normalised(key), value) for key, value in arguments.items() if value is not None]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: the nearest known one, if any is near."""
    nearest = difflib.get_close_matches(word[:MAX_SHOWN], known, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def take(found: ModelSettings, place: str, pairs: Iterable[tuple[str, object]]) -> None:
    """Puts the pairs of one place over what earlier places said."""
    unknown: list[str] = []
    spelled: dict[str, str] = {}
    for key, raw in pairs:
        option = BY_KEY.get(key)
        if option is None:
            if key not in unknown:
                unknown.append(key)
            continue
        if option.target == VIDEO:
            raise OptionError(f"{option.name} in {place} asks for a video model, and this build has no video engine")
        try:
            value = option.read(raw)
        except Unusable as needed:
            raise OptionError(f"{key} in {place} is {shown(raw)}; it must be {needed}") from None
        if option.name in spelled and found.sources[option.name] != (place, value):
            earlier = shown(found.sources[option.name][1])
            raise OptionError(f"{key} is given twice in {place}, as {earlier} and as {shown(value)}")
        spelled[option.name] = key
        found.sources[option.name] = (place, value)
    for key in unknown[:MAX_WARNINGS]:
        found.warnings.append(f"{place} has the unknown key {shown(key)}{did_you_mean(key, BY_KEY)}")
    if len(unknown) > MAX_WARNINGS:
        found.warnings.append(f"{place} has {len(unknown) - MAX_WARNINGS} more unknown keys")


def check_parsers(found: ModelSettings, known: Mapping[str, Any]) -> None:
    """Refuses names of parsers that are not among what the engine's query "parsers" answered."""
    for key in ("tool_parser", "reasoning_parser"):
        place, name = found.sources.get(key, ("", ""))
        names = [word for entry in known[key + "s"] for word in (entry["name"], *entry["aliases"])]
        if name and name not in names:
            raise OptionError(
                f"{key} in {place} is {shown(name)}; it must be one of {', '.join(sorted(names))}"
                + did_you_mean(name, names)
            )


def resolve_companions(found: ModelSettings, models: str) -> None:
    """Makes the paths among the settings absolute."""
    place, config = found.sources.get("tokenizer_config", ("", ""))
    if config:
        path = paths.find_companion("tokenizer_config", config, models, os.path.isfile, "a file")
        found.sources["tokenizer_config"] = (place, path)
    place, speculation = found.sources.get("speculative_config", ("", {}))
    method = speculation.get("method") if isinstance(speculation, dict) else None
    if isinstance(method, str) and method.lower() in ("dflash", "dspark", "draft_model"):
        model = speculation.get("model")
        if not isinstance(model, str) or not model or "\0" in model:
            raise OptionError(f"speculative_config has no model; method {method} needs the path of a draft model")
        needed = "a directory with a config.json, or a .gguf file"
        path = paths.find_companion("the draft model", model, models, paths.is_draft, needed)
        found.sources["speculative_config"] = (place, {**speculation, "model": path})


def read(request: Any, path: str) -> ModelSettings:
    """The settings of a ModelOptions message for the model at `path`.

    OptionError and PathError end the load with their sentence.
    """
    for name in REFUSED_FIELDS:
        if getattr(request, name):
            raise OptionError(f"{name} is set, and this backend has no adapters")
    found = ModelSettings(path)
    ignored = []
    for name, harmless in IGNORED_FIELDS:
        value = getattr(request, name)
        if value not in harmless and (isinstance(value, str | int | float) or len(value) > 0):
            ignored.append(name)
    if ignored:
        found.warnings.append(f"these fields of the model's configuration have no effect here: {', '.join(ignored)}")

    typed: list[tuple[str, object]] = []
    if request.MaxModelLen > 0:
        take(found, "max_model_len", [("max_model_len", request.MaxModelLen)])
    elif request.ContextSize > 0:
        take(found, "context_size", [("max_model_len", request.ContextSize)])
    if request.Threads > 0:
        typed.append(("threads", request.Threads))
    if request.GPUMemoryUtilization != 0:
        typed.append(("gpu_memory_utilization", round(request.GPUMemoryUtilization, 6)))
    take(found, "model configuration", typed)
    take(found, "options", from_options(request.Options))
    take(found, "engine_args", from_engine_args(request.EngineArgs))

    resolve_companions(found, paths.models_directory(request.ModelPath, path))
    for option in TABLE:
        if option.name not in found.sources:
            continue
        value = found.sources[option.name][1]
        target = found.params if option.target == PARAM else found.settings
        target[option.destination] = to_json(value) if isinstance(value, dict) else value
    found.params["model_path"] = path
    place = found.sources["max_model_len"][0] if "max_model_len" in found.sources else "none"
    found.settings["clip_max_model_len"] = place not in ("options", "engine_args")
    return found


def render_table(options: Iterable[Option] = TABLE) -> str:
    """The settings table of the README, in Markdown."""
    rows = ["| Key | Type | Default | Meaning |", "| --- | --- | --- | --- |"]
    for option in options:
        if option.target == VIDEO:
            continue
        names = f"`{option.name}`" + "".join(f", `{alias}`" for alias in option.aliases)
        rows.append(f"| {names} | {option.type} | {option.default} | {option.help} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(render_table(), end="")

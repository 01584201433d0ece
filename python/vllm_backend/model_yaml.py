"""A model's YAML of LocalAI to the ModelOptions that LocalAI makes of it, as far as this backend reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vllm_backend import backend_pb2
from vllm_backend.ending import StartError
from vllm_backend.strict_json import shown, to_json

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000
HOST_CONTEXT = 4096  # what the host sends for a model without context_size

# Key of the YAML, type, field of ModelOptions.
FIELDS: tuple[tuple[str, type, str], ...] = (
    ("context_size", int, "ContextSize"),
    ("max_model_len", int, "MaxModelLen"),
    ("threads", int, "Threads"),
    ("cuda", bool, "CUDA"),
    ("gpu_memory_utilization", float, "GPUMemoryUtilization"),
    ("tensor_parallel_size", int, "TensorParallelSize"),
    ("quantization", str, "Quantization"),
    ("dtype", str, "DType"),
    ("load_format", str, "LoadFormat"),
    ("tokenizer", str, "Tokenizer"),
    ("mmproj", str, "MMProj"),
    ("draft_model", str, "DraftModel"),
    ("lora_adapter", str, "LoraAdapter"),
    ("lora_base", str, "LoraBase"),
    ("embeddings", bool, "Embeddings"),
    ("reranking", bool, "Reranking"),
)


def read_file(path: str) -> dict[str, Any]:
    """The YAML's mapping. Raises StartError."""
    import yaml  # type: ignore[import-untyped]  # here, for only commands need it

    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise StartError(f"{path} has more than {MAX_BYTES} bytes, which no model configuration has")
    try:
        config = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise StartError(f"{path} is not YAML: {error}") from None
    if not isinstance(config, dict):
        raise StartError(f"{path} holds {shown(config)}; needed is a mapping, one model's configuration")
    return config


def check_size(value: Any) -> None:
    """Refuses a value whose YAML references make it larger than any file."""
    rest, seen = [value], 0
    while rest:
        item = rest.pop()
        seen += 1
        if seen > MAX_VALUES:
            raise StartError(f"the model configuration has more than {MAX_VALUES} values")
        if isinstance(item, dict):
            rest.extend(item.values())
        elif isinstance(item, list):
            rest.extend(item)


def model_options(config: Mapping[str, Any], models: str) -> backend_pb2.ModelOptions:
    """What the host sends at LoadModel. `models` is the host's models directory. Raises StartError."""

    def typed(key: str, value: Any, kind: type) -> Any:
        good = isinstance(value, kind) or (kind is float and isinstance(value, int))
        if not good or (kind is not bool and isinstance(value, bool)):
            raise StartError(f"{key} is {shown(value)}; needed is a value of type {kind.__name__}")
        return value

    check_size(config)
    request = backend_pb2.ModelOptions(ModelPath=models, ContextSize=HOST_CONTEXT)
    for key, kind, field in FIELDS:
        value = config.get(key)
        if value is None:
            continue
        try:
            setattr(request, field, typed(key, value, kind))
        except ValueError:
            raise StartError(f"{key} is {shown(value)}, which is out of range") from None
    parameters = typed("parameters", config.get("parameters") or {}, dict)
    model = typed("parameters.model", parameters.get("model") or "", str)
    request.Model = model
    request.ModelFile = os.path.join(models, model) if model else ""
    for entry in typed("options", config.get("options") or [], list):
        request.Options.append(typed("an entry of options", entry, str))
    arguments = config.get("engine_args")
    if arguments is not None:
        try:
            request.EngineArgs = to_json(typed("engine_args", arguments, dict))
        except (TypeError, ValueError) as error:
            raise StartError(f"engine_args cannot become JSON: {error}") from None
    return request

"""The arguments that name a model and its settings, the same for every command."""

from __future__ import annotations

import argparse
import os
from typing import Any

from vllm_backend import backend_pb2, model_yaml
from vllm_backend.ending import PROGRAM, StartError


def parser_for(command: str, description: str, model_needed: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} {command}", description=description)
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a .gguf file, or a folder with config.json and safetensors"
        + ("" if model_needed else "; may be left out"),
    )
    group = parser.add_argument_group("settings, of which the later in this list win")
    group.add_argument("--config", metavar="FILE", help="a LocalAI model YAML; MODEL then stands over its own")
    group.add_argument("--context", type=int, metavar="N", help="longest sequence in tokens, as context_size")
    group.add_argument("--threads", type=int, metavar="N", help="threads of the CPU device")
    group.add_argument(
        "--options", action="append", default=[], metavar="KEY:VALUE", help="as an entry of options; may be repeated"
    )
    group.add_argument("--engine-args", metavar="JSON", help="as engine_args: a JSON object")
    parser.add_argument(
        "--models-path",
        metavar="DIR",
        help="LocalAI's models directory, where relative paths are looked for; else the folder of FILE, or of MODEL",
    )
    return parser


def model_options(arguments: argparse.Namespace) -> backend_pb2.ModelOptions | None:
    """The ModelOptions that the arguments stand for; None when they name no model. Raises StartError."""
    for path in (arguments.model, arguments.config, arguments.models_path):
        check_text(path or "")
    model = os.path.abspath(arguments.model) if arguments.model else ""
    models = arguments.models_path or os.path.dirname(os.path.abspath(arguments.config) if arguments.config else model)
    models = os.path.abspath(models)
    if arguments.config:
        request = model_yaml.model_options(model_yaml.read_file(arguments.config), models)
    else:
        request = backend_pb2.ModelOptions(ModelPath=models)
    if model:
        request.Model = request.Model or arguments.model
        request.ModelFile = model
    if not request.ModelFile:
        if arguments.config:
            raise StartError(f"{arguments.config} has no parameters.model, and no MODEL is given")
        return None
    for name, value in (("ContextSize", arguments.context), ("Threads", arguments.threads)):
        if value is not None:
            set_number(request, name, value)
    request.Options.extend(arguments.options)
    if arguments.engine_args is not None:
        request.EngineArgs = arguments.engine_args
    return request


def check_text(path: str) -> None:
    """Refuses a path that the host could not send."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise StartError(f"the path {os.fsencode(path)!r} is not UTF-8; rename it") from None


def needed_model(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> backend_pb2.ModelOptions:
    request = model_options(arguments)
    if request is None:
        parser.error("MODEL or --config is needed")
    return request


def set_number(request: Any, name: str, value: int) -> None:
    if not 0 < value < 2**31:
        raise StartError(f"{name} is {value}; it must be a whole number from 1")
    setattr(request, name, value)

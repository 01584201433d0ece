"""Where a model and the files that go with it are found. The working directory never matters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


class PathError(Exception):
    """A file that is needed is not there, or is not what it should be; the text is one sentence."""


def models_directory(model_path: str, model_file: str) -> str:
    """The host's models directory; a request without one means the folder of the model."""
    return model_path or os.path.dirname(model_file)


def find_model(model: str, model_file: str, model_path: str) -> str:
    """The directory or .gguf file that the host means: ModelFile if it exists, else Model under ModelPath."""
    candidates: list[str] = []
    for reference in (model_file, model):
        if not reference:
            continue
        path = os.path.join(model_path, reference) if model_path else reference
        if os.path.isabs(path) and path not in candidates:
            candidates.append(path)
    if not candidates:
        given = model_file or model
        if not given:
            raise PathError("no model is named: ModelFile and Model are empty")
        raise PathError(f"the model path {given!r} is relative and ModelPath is empty; one of them must be absolute")
    tried: list[str] = []
    for path in candidates:
        try:
            os.stat(path)
        except FileNotFoundError:
            tried.append(path)
        except (OSError, ValueError) as error:
            tried.append(f"{path} ({getattr(error, 'strerror', None) or error})")
        else:
            check_model(path)
            return path
    raise PathError(f"the model was not found at {' or '.join(tried)}")


def check_model(path: str) -> None:
    """Refuses at once what can be no model of ours, before the library or a device is touched."""
    if os.path.isdir(path):
        if not os.path.isfile(os.path.join(path, "config.json")):
            files = sorted(name for name in os.listdir(path) if name.lower().endswith(".gguf"))
            hint = f"; to load its file {files[0]}, name that one" if files else ""
            raise PathError(f"the model directory {path} has no config.json{hint}")
    elif not path.lower().endswith(".gguf"):
        raise PathError(f"{path} is neither a .gguf file nor a directory with a config.json")
    elif not os.path.isfile(path):
        raise PathError(f"{path} is not a regular file")


def find_companion(name: str, reference: str, models: str, fits: Callable[[str], bool], needed: str) -> str:
    """The absolute path of a file or directory that belongs to a model.

    Looked for as given, then by its last part under the models directory, then as a whole under it. `needed` says in
    words what `fits` checks.
    """
    tried: list[str] = []
    if os.path.isabs(reference):
        tried.append(reference)
    if os.path.isabs(models):
        last = Path(reference).name
        for path in (os.path.join(models, last), os.path.join(models, reference.lstrip("/"))):
            if path not in tried:
                tried.append(path)
    for path in tried:
        if fits(path):
            return path
    places = ", ".join(tried) if tried else "no place, since the models directory is not known"
    raise PathError(f"{name} {reference!r} was not found as {needed}; looked at {places}")


def is_draft(path: str) -> bool:
    """A draft is a directory with a config.json, or a .gguf file."""
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, "config.json"))
    return path.lower().endswith(".gguf") and os.path.isfile(path)

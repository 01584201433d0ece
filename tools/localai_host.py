"""Stands in for LocalAI as the host of backends: installs them, starts one process a model, and ends it.

What the host does is taken from its documented behaviour alone: `local-ai backends install` with a folder or an image
tarball, the swap of an installed backend for a newer one, the first request that loads, the health checks between
requests, the idle watchdog, and the steps of an unload. Needs grpcio and protobuf.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

import grpc
from localai_client import HEALTH_SLEEP, Backend, BackendError, Client

HEALTH_EVERY_S = 30.0
DRAIN_S, DRAIN_POLL_S = 30.0, 0.1
FREE_TIMEOUT_S = 5.0
OCIFILE = "ocifile://"


class HostError(Exception):
    """What the host refuses; one sentence."""


@dataclass(frozen=True)
class ModelConfig:
    """A model's YAML."""

    name: str
    model: str  # parameters.model: below the models folder, or absolute
    backend: str
    context_size: int = 4096
    engine_args: dict = field(default_factory=dict)
    attempts_sleep_s: float = HEALTH_SLEEP  # grpc.attempts_sleep_time: between two looks whether the backend is ready


class LoadedModel:
    """A backend process and what the host remembers of it."""

    def __init__(self, config: ModelConfig, process: Backend):
        self.config, self.process = config, process
        self.in_flight = 0
        self.last_used = self.last_health = time.monotonic()

    @property
    def pid(self) -> int:
        return self.process.process.pid


class Host:
    """Backends in one folder, models in another. A context manager that ends all processes."""

    def __init__(self, backends: Path, models: Path, idle_timeout_s: float | None = None):
        self.backends, self.models, self.idle_timeout_s = backends, models, idle_timeout_s
        self.loaded: dict[str, LoadedModel] = {}
        self._changing = threading.Lock()
        self._counting = threading.Lock()
        backends.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_) -> None:
        for name in list(self.loaded):
            self.unload(name, forced=True)

    # ---- Backends ----

    def install(self, argument: str, name: str | None = None, alias: str | None = None) -> str:
        """`local-ai backends install ARGUMENT [NAME] [ALIAS]`; gives the backend's name."""
        source = Path(argument.removeprefix(OCIFILE))
        is_image = argument.startswith(OCIFILE)
        if not (source.is_file() if is_image else source.is_dir()):
            raise HostError(f"{argument} is neither a folder nor {OCIFILE} with an image tarball")
        name = name or (source.stem if is_image else source.name)
        staged = self.backends / f"{name}.install-tmp"
        shutil.rmtree(staged, ignore_errors=True)
        try:
            if is_image:
                staged.mkdir()
                try:
                    unpack_image(source, staged)
                except (tarfile.TarError, ValueError, LookupError, EOFError) as error:
                    raise HostError(f"{argument} cannot be unpacked: {error}") from error
            else:
                shutil.copytree(source, staged, symlinks=True)
            if not (staged / "run.sh").is_file():
                raise HostError(f"{argument} is not a valid backend: it has no run.sh")
            about = {
                "name": name,
                "alias": alias,
                "uri": argument,
                "installed_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            }
            text = json.dumps({key: value for key, value in about.items() if value})
            (staged / "metadata.json").write_text(text, encoding="utf-8")
            self._swap(staged, self.backends / name)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return name

    def _swap(self, staged: Path, place: Path) -> None:
        backup = place.with_name(f"{place.name}.install-backup")
        shutil.rmtree(backup, ignore_errors=True)
        if place.exists():
            place.rename(backup)
        try:
            staged.rename(place)
        except OSError:
            if backup.exists():
                backup.rename(place)
            raise
        shutil.rmtree(backup, ignore_errors=True)

    def folder_of(self, backend: str) -> Path:
        """The installed folder that a model's `backend:` means, by its name or else by its alias."""
        backend = backend.lower()
        aliases = {}
        for folder in sorted(path for path in self.backends.iterdir() if (path / "run.sh").is_file()):
            if folder.name == backend:
                return folder
            with contextlib.suppress(OSError, ValueError):
                about = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
                aliases.setdefault(about.get("alias"), folder)
        if backend not in aliases:
            raise HostError(f"no backend is called {backend}; installed are {sorted(os.listdir(self.backends))}")
        return aliases[backend]

    # ---- Models ----

    @contextlib.contextmanager
    def request(self, config: ModelConfig) -> Iterator[Client]:
        """A client for one request. The first one of a model starts its backend and loads it."""
        with self._changing:
            loaded = self._checked(config.name) or self._load(config)
        with self._counting:
            loaded.in_flight += 1
        try:
            yield loaded.process.client
        finally:
            with self._counting:
                loaded.in_flight -= 1
                loaded.last_used = time.monotonic()

    def _checked(self, name: str) -> LoadedModel | None:
        """The model if its backend still answers, or lives at least; Health is asked when the last answer is old."""
        loaded = self.loaded.get(name)
        if loaded is None or time.monotonic() - loaded.last_health < HEALTH_EVERY_S:
            return loaded
        with contextlib.suppress(grpc.RpcError):
            loaded.process.client.health()
            loaded.last_health = time.monotonic()
            return loaded
        if loaded.process.process.poll() is None:
            return loaded
        self._forget(name)
        return None

    def _load(self, config: ModelConfig) -> LoadedModel:
        folder = self.folder_of(config.backend)
        script = folder / "run.sh"
        if not os.access(script, os.X_OK):
            script.chmod(0o700)
        caches = dict.fromkeys(("HF_HOME", "TRANSFORMERS_CACHE", "HUGGINGFACE_HUB_CACHE"), str(self.models))
        process = Backend(folder, {key: value for key, value in caches.items() if key not in os.environ})
        try:
            process.wait_ready(config.attempts_sleep_s)
            process.client.load(
                config.model,
                timeout=None,
                engine_args=config.engine_args,
                ModelFile=str(self.models / config.model),
                ModelPath=str(self.models),
                ContextSize=config.context_size,
            )
        except BaseException:
            process.kill()
            raise
        loaded = self.loaded[config.name] = LoadedModel(config, process)
        return loaded

    def _forget(self, name: str) -> None:
        self.loaded.pop(name).process.kill()

    def unload(self, name: str, forced: bool = False) -> float:
        """Ends a model's process: waits for its calls, frees, then signals. Gives the seconds from the first signal."""
        with self._changing:
            loaded = self.loaded.get(name)
            if loaded is None:
                raise HostError(f"no model is called {name}; loaded are {sorted(self.loaded)}")
            if not forced:
                self._drain(loaded)
                try:
                    loaded.process.client.free(timeout=FREE_TIMEOUT_S)
                except grpc.RpcError as error:
                    if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                        raise BackendError(f"Free failed: {error.details()}") from error
            del self.loaded[name]
            return loaded.process.stop()

    def _drain(self, loaded: LoadedModel) -> None:
        end = time.monotonic() + DRAIN_S
        while loaded.in_flight and time.monotonic() < end:
            time.sleep(DRAIN_POLL_S)

    def watch(self) -> list[str]:
        """One look of the idle watchdog: ends the models that were idle for too long, and names them."""
        if self.idle_timeout_s is None:
            return []
        limit = time.monotonic() - self.idle_timeout_s
        idle = [name for name, model in self.loaded.items() if not model.in_flight and model.last_used < limit]
        for name in idle:
            self.unload(name)
        return idle


def unpack_image(image: Path, folder: Path) -> None:
    """The root file system of a docker-save tarball, without owners. Every blob is held to its digest."""
    with tarfile.open(image) as tar:

        def blob(name: str) -> bytes:
            try:
                file = tar.extractfile(name)
            except KeyError:
                file = None
            if file is None:
                raise HostError(f"{image.name} has no {name}")
            return file.read()

        manifests = json.loads(blob("manifest.json"))
        if len(manifests) != 1:
            raise HostError(f"{image.name} has {len(manifests)} images, one is needed")
        config = json.loads(blob(manifests[0]["Config"]))
        digests = config["rootfs"]["diff_ids"]
        for name, digest in zip(manifests[0]["Layers"], digests, strict=True):
            content = blob(name)
            if content.startswith(b"\x1f\x8b"):
                content = gzip.decompress(content)
            if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
                raise HostError(f"the layer {name} of {image.name} does not have the digest {digest}")
            _unpack_layer(content, folder)


def _unpack_layer(content: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as layer:
        for member in layer:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or path.name.startswith(".wh."):
                raise HostError(f"the image has the entry {member.name}, which has no place in a backend")
            if not (member.isfile() or member.isdir()):
                raise HostError(f"the image has {member.name}, which is neither a file nor a folder")
            target = folder / path
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(layer.extractfile(member).read())
            target.chmod(member.mode & 0o777)

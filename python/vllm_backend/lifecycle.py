"""The model that the process holds: its loading, its freeing, and the requests that run on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from vllm_backend import options, paths
from vllm_backend.errors import BackendError, model_not_loaded
from vllm_backend.generation import Generation
from vllm_backend.native import Engine, LibraryError, open_library

log = logging.getLogger(__name__)
T = TypeVar("T")


class LoadError(Exception):
    """Why a model cannot be loaded; the text is one sentence for the host."""


class Model:
    """An engine and what is known about it."""

    def __init__(self, engine: Engine, identity: str, info: dict[str, Any]) -> None:
        self.engine = engine
        self.identity = identity  # ModelOptions.Model of its load
        self.info = info
        self.generations: set[Generation] = set()
        self.warned: set[str] = set()  # request fields whose lack of effect was said


@dataclass
class Loaded:
    """An engine with the settings it was loaded with, and what it says of itself."""

    engine: Engine
    found: options.ModelSettings
    facts: dict[str, Any]


def load_engine(request: Any, plan_only: bool = False) -> Loaded:
    """Everything of a load that blocks, cheapest check first. Raises LoadError.

    With `plan_only` no weights are read, and the engine answers queries alone.
    """
    try:
        path = paths.find_model(request.Model, request.ModelFile, request.ModelPath)
        found = options.read(request, path)
        for warning in found.warnings:
            log.warning("%s", warning)
        library = open_library()
        own = {"plan_only": True} if plan_only else {"report_crashes": True}
        engine = library.load(found.params, {**found.settings, **own})
    except (paths.PathError, options.OptionError, LibraryError, BackendError) as error:
        raise LoadError(str(error)) from None
    except (OSError, ValueError) as error:
        raise LoadError(f"the model cannot be loaded: {error}") from error
    try:
        info = engine.query({"query": "info"})
        parsers = engine.query({"query": "parsers"})
        options.check_parsers(found, parsers)
    except options.OptionError as error:
        engine.free()
        raise LoadError(str(error)) from None
    except (BackendError, ValueError, LookupError) as error:
        engine.free()
        raise LoadError(f"the engine does not describe the model: {error}") from None
    log.info("%s library=%s version=%s", found.line(info), library.path, library.version())
    if request.CUDA and str(info.get("device")).startswith("cpu"):
        log.warning("the model's configuration says cuda: true, and this build runs it on the CPU")
    in_use: dict[str, Any] = {key: parsers[key] for key in ("tool_parser", "reasoning_parser") if key in parsers}
    return Loaded(engine, found, {**info, **in_use})


class Attempt:
    """One load; abandoned when the client that asked for it went away."""

    abandoned = False


class Lifecycle:
    """Holds at most one model. Loads and frees run one at a time; requests run beside each other."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._changing = asyncio.Lock()
        self._loading = 0
        self._closing: BackendError | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loader = ThreadPoolExecutor(1, "load")
        self._submitters = ThreadPoolExecutor(4, "submit")
        self._releasers = ThreadPoolExecutor(2, "release")
        self._askers = ThreadPoolExecutor(2, "ask")

    # ---- What is there ----

    @property
    def model(self) -> Model:
        if self._model is None:
            raise model_not_loaded()
        return self._model

    @property
    def identity(self) -> str:
        return self._model.identity if self._model else ""

    @property
    def loaded(self) -> bool:
        return self._model is not None

    @property
    def busy(self) -> bool:
        return self._loading > 0 or (self._model is not None and len(self._model.generations) > 0)

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Asks the engine for something it has at hand."""
        return await asyncio.get_running_loop().run_in_executor(self._askers, self.model.engine.query, question)

    async def convert(self, question: dict[str, Any]) -> dict[str, Any]:
        """Asks the engine for work on a text, which may be long: it must not delay those who ask for a status."""
        return await asyncio.get_running_loop().run_in_executor(self._submitters, self.model.engine.query, question)

    @contextlib.asynccontextmanager
    async def generation(self, build: Callable[[], bytes]) -> AsyncIterator[Generation]:
        """A request that is submitted, and is released however the body ends, also by a client that goes away."""
        if self._closing is not None:
            raise self._closing
        model = self.model
        generation = Generation(model.engine, self._submitters, self._releasers)
        model.generations.add(generation)
        try:
            await generation.start(build)
            yield generation
        finally:
            generation.release()
            model.generations.discard(generation)

    # ---- Changes ----

    async def load(self, request: Any) -> None:
        """Frees what is loaded, then loads. A client that goes away leaves nothing half-loaded."""
        if self._closing is not None:
            raise self._closing
        attempt = Attempt()
        task = self._background(self._load(request, attempt))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            attempt.abandoned = True
            if task.done() and not task.cancelled() and task.exception() is None:
                self._background(self.free())
            raise

    async def _load(self, request: Any, attempt: Attempt) -> None:
        self._loading += 1
        try:
            async with self._changing:
                if attempt.abandoned:
                    return
                await self._unload("the model was replaced while the request ran")
                loaded = await self._in_loader(lambda: load_engine(request))
                if attempt.abandoned:
                    await self._in_loader(loaded.engine.free)
                    return
                self._model = Model(loaded.engine, request.Model, loaded.facts)
        finally:
            self._loading -= 1

    async def free(self) -> None:
        """Ends running requests and frees the model, also when the client does not wait for it."""
        await asyncio.shield(self._background(self._free()))

    async def _free(self) -> None:
        async with self._changing:
            await self._unload("the model was freed while the request ran")

    async def _unload(self, reason: str) -> None:
        if self._model is None:
            return
        model, self._model = self._model, None
        model.engine.close()
        for generation in list(model.generations):
            generation.abort(BackendError(grpc.StatusCode.ABORTED, reason))
        await self._in_loader(model.engine.free)

    def refuse(self, error: BackendError) -> None:
        """Ends all requests with the error, and every later one."""
        self._closing = error
        if self._model is not None:
            for generation in list(self._model.generations):
                generation.abort(error)

    async def _in_loader(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._loader, call)

    def _background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        """Keeps asyncio from reporting the error of a load whose client has gone."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

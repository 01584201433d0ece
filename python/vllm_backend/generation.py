"""One request on the engine, from its submission to its release, whichever way it ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from vllm_backend.errors import BackendError
from vllm_backend.native import Engine, Request

Chunk = tuple[bytes, bool]  # JSON of a delta, and whether it is the last


class Generation:
    """Lives on the event loop. The library's threads only put bytes into its queue."""

    def __init__(self, engine: Engine, submitters: ThreadPoolExecutor, releasers: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._submitters = submitters
        self._releasers = releasers
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[Chunk | BackendError] = asyncio.Queue()
        self._submission: concurrent.futures.Future[Request] | None = None
        self._failed = False
        self._released = False

    async def start(self, build: Callable[[], bytes]) -> None:
        """Builds the request's JSON and submits it; raises what is wrong with it."""

        def submit() -> Request:
            return self._engine.submit(build(), self._deliver)

        if self._released:
            return
        self._submission = self._submitters.submit(submit)
        try:
            await asyncio.wrap_future(self._submission)
        except asyncio.CancelledError:
            if self._failed:  # an abort came before the submission began; next() has its error
                return
            raise

    def _deliver(self, chunk: bytes, finished: bool) -> None:
        self._loop.call_soon_threadsafe(self._chunks.put_nowait, (chunk, finished))

    async def next(self) -> Chunk:
        """The next chunk. After an abort it raises the abort's error once the chunks before it are read."""
        item = await self._chunks.get()
        if isinstance(item, BackendError):
            raise item
        return item

    def abort(self, error: BackendError) -> None:
        """Ends the request from our side; its handler gets the error."""
        if not self._failed:
            self._failed = True
            self._chunks.put_nowait(error)
        self.release()

    def release(self) -> None:
        """Cancels the request if it runs and lets go of its handle, in a thread of its own kind. Returns at once."""
        if self._released:
            return
        self._released = True
        if self._submission is not None:
            self._submission.cancel()
            self._submission.add_done_callback(self._drop)

    def _drop(self, submission: concurrent.futures.Future[Request]) -> None:
        if submission.cancelled() or submission.exception() is not None:
            return
        request = submission.result()
        request.cancel()
        self._releasers.submit(request.free)

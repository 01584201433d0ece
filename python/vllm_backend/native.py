"""libvllm through cffi in ABI mode.

The declarations are cut from vllm.h and vllm_ext.h themselves, so nothing is declared twice. Calls release the
interpreter lock; those that may take time are made from executor threads by the callers of this module.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cffi

from vllm_backend.errors import Status, engine_error, model_not_loaded

HEADERS = ("vllm.h", "vllm_ext.h")
PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent.parent

# A delta of the text of a request, as its JSON, and whether it is the last. Called on threads of the library: it must
# only hand the bytes on.
Deliver = Callable[[bytes, bool], None]

# The library's threads wait this long for the interpreter lock while Python computes; the default is 5 ms.
sys.setswitchinterval(0.0005)


class LibraryError(Exception):
    """The library or its headers cannot be used; the text is one sentence."""


def find_library() -> Path:
    """VLLM_CPP_LIBRARY if set, else the library of the installation, else that of the build folder."""
    named = os.environ.get("VLLM_CPP_LIBRARY")
    if named:
        return Path(named)
    file = "libvllm.dylib" if sys.platform == "darwin" else "libvllm.so"
    places = [ROOT / "lib" / file, PACKAGE / file, ROOT / file, ROOT / "build" / file]
    for place in places:
        if place.exists():
            return place
    raise LibraryError(
        f"{file} was not found at {', '.join(map(str, places))}; build it or set VLLM_CPP_LIBRARY to its path"
    )


def find_headers(library: Path) -> list[Path]:
    """The two public headers: beside the library, or where the source tree keeps them."""
    folder = library.resolve().parent
    folders = [folder, folder / "include", folder.parent / "include", ROOT / "include", ROOT / "native" / "include"]
    for place in folders:
        found = [place / name for name in HEADERS]
        if all(path.exists() for path in found):
            return found
    raise LibraryError(f"{' and '.join(HEADERS)} were not found at {', '.join(map(str, folders))}")


def declarations(header: str) -> str:
    """The C declarations of a header, as a C compiler sees them, without comments, macros and attributes."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", header, flags=re.DOTALL).replace("\\\n", " ")
    kept: list[str] = []
    shown: list[bool] = []  # one entry a conditional that is open: whether its current branch is for C
    for line in text.splitlines():
        directive = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
        if directive is None:
            if all(shown):
                kept.append(line)
            continue
        word, rest = directive.group(1), directive.group(2)
        if word in ("if", "ifdef", "ifndef"):
            shown.append(word == "ifndef" or "__cplusplus" not in rest)
        elif word == "else":
            shown[-1] = not shown[-1]
        elif word == "endif":
            shown.pop()
    return re.sub(r"\bVLLM_API\b", "", "\n".join(kept))


def abi_version(header: str) -> int:
    found = re.search(r"^\s*#\s*define\s+VLLM_ABI_VERSION\s+(\d+)", header, flags=re.MULTILINE)
    if found is None:
        raise LibraryError("vllm.h does not define VLLM_ABI_VERSION")
    return int(found.group(1))


def foreign_interface(headers: list[str]) -> Any:
    ffi = cffi.FFI()
    ffi.cdef("\n".join(declarations(text) for text in headers))
    return ffi


class Library:
    """The opened library. There is one a process: cffi's callback lives as long as this object."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise LibraryError(f"the library {path} does not exist; build it or correct VLLM_CPP_LIBRARY")
        headers = [place.read_text(encoding="utf-8") for place in find_headers(path)]
        self.path = path
        self.ffi = foreign_interface(headers)
        try:
            self.calls = self.ffi.dlopen(str(path.resolve()))
        except OSError as error:
            raise LibraryError(f"the library {path} cannot be opened: {error}") from None
        needed = abi_version(headers[0])
        try:
            found = int(self.calls.vllm_abi_version())
        except AttributeError:
            raise LibraryError(f"the library {path} has no vllm_abi_version; it is not libvllm") from None
        if found != needed:
            raise LibraryError(f"the library {path} has ABI version {found}, this backend needs {needed}")
        try:
            for name in ("vllm_ext_load", "vllm_ext_submit", "vllm_ext_query"):
                getattr(self.calls, name)
        except AttributeError:
            raise LibraryError(f"the library {path} lacks {name} of vllm_ext.h") from None
        self.abi = found
        self._deliveries: dict[int, Deliver] = {}
        self._ids = itertools.count(1)
        self.callback = self.ffi.callback(
            "bool(const char *, bool, void *)", self._on_delta, error=False, onerror=lambda *_: None
        )

    def version(self) -> str:
        return self._text(self.calls.vllm_version())

    def _text(self, pointer: Any) -> str:
        return bytes(self.ffi.string(pointer)).decode("utf-8", "replace") if pointer else ""

    def check(self, status: int) -> None:
        """Raises the error of the call that this thread made last, unless its status is OK."""
        if status != Status.OK:
            message = re.sub(r"\Avllm_\w+: ", "", self._text(self.calls.vllm_last_error()))  # the function's name
            raise engine_error(int(status), message)

    def _on_delta(self, delta: Any, finished: Any, user_data: Any) -> bool:
        deliver = self._deliveries.get(int(self.ffi.cast("uintptr_t", user_data)))
        if deliver is None:
            return False
        deliver(bytes(self.ffi.string(delta)), bool(finished))
        return True

    @contextlib.contextmanager
    def registered(self, deliver: Deliver) -> Iterator[int]:
        """A user-data number for deltas; it stays registered unless the body raises."""
        number = next(self._ids)
        self._deliveries[number] = deliver
        try:
            yield number
        except BaseException:
            self.forget(number)
            raise

    def forget(self, number: int) -> None:
        self._deliveries.pop(number, None)

    def load(self, params: Mapping[str, Any], settings: Mapping[str, Any]) -> Engine:
        """vllm_ext_load. `params` are fields of vllm_model_params; a text may be None. Blocks until loaded."""
        struct = self.ffi.new("vllm_model_params *")
        kept_alive = []
        for name, value in params.items():
            if isinstance(value, str):
                value = self.ffi.new("char[]", value.encode("utf-8"))
                kept_alive.append(value)
            if value is not None:
                setattr(struct, name, value)
        out = self.ffi.new("vllm_engine **")
        self.check(self.calls.vllm_ext_load(struct, json.dumps(settings).encode("utf-8"), out))
        return Engine(self, out[0])

    def query(self, handle: Any, question: Mapping[str, Any]) -> dict[str, Any]:
        """vllm_ext_query."""
        out = self.ffi.new("char **")
        self.check(self.calls.vllm_ext_query(handle, json.dumps(question).encode("utf-8"), out))
        try:
            answer = json.loads(bytes(self.ffi.string(out[0])))
        finally:
            self.calls.vllm_string_free(out[0])
        if not isinstance(answer, dict):
            raise engine_error(Status.UNKNOWN, f"the engine's answer to {question.get('query')!r} is not an object")
        return answer

    def machine(self) -> dict[str, Any]:
        """The query "machine", which needs no engine."""
        return self.query(self.ffi.NULL, {"query": "machine"})


class Engine:
    """A loaded model. Every method may be called from any thread; free waits for the others."""

    def __init__(self, library: Library, handle: Any) -> None:
        self._library = library
        self._handle = handle
        self._changed = threading.Condition()
        self._users = 0
        self._closing = False

    def enter(self) -> None:
        with self._changed:
            if self._closing:
                raise model_not_loaded()
            self._users += 1

    def leave(self) -> None:
        with self._changed:
            self._users -= 1
            self._changed.notify_all()

    def query(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """vllm_ext_query: the answer to one question of vllm_ext.h."""
        self.enter()
        try:
            return self._library.query(self._handle, question)
        finally:
            self.leave()

    def submit(self, request: bytes, deliver: Deliver) -> Request:
        """vllm_ext_submit. The request holds the engine until it is freed."""
        library = self._library
        self.enter()
        try:
            with library.registered(deliver) as number:
                out = library.ffi.new("vllm_request **")
                user_data = library.ffi.cast("void *", number)
                library.check(library.calls.vllm_ext_submit(self._handle, request, library.callback, user_data, out))
        except BaseException:
            self.leave()
            raise
        return Request(library, self, out[0], number)

    def close(self) -> None:
        """Refuses new calls from now on."""
        with self._changed:
            self._closing = True

    def free(self) -> None:
        """Waits until every call and request is over, then frees the model."""
        self.close()
        with self._changed:
            self._changed.wait_for(lambda: self._users == 0)
        self._library.calls.vllm_engine_free(self._handle)


class Request:
    """A request of the library."""

    def __init__(self, library: Library, engine: Engine, handle: Any, number: int) -> None:
        self._library = library
        self._engine = engine
        self._handle = handle
        self._number = number

    def cancel(self) -> None:
        """Returns at once; the engine drops the request at its next step and delivers nothing more."""
        self._library.calls.vllm_request_cancel(self._handle)

    def free(self) -> None:
        """Waits until the library has let go of the request. To be called once."""
        self._library.calls.vllm_request_free(self._handle)
        self._library.forget(self._number)
        self._engine.leave()


_library: Library | None = None
_opening = threading.Lock()


def open_library() -> Library:
    """The library, opened at the first call; a failure is reported again by each call."""
    global _library
    with _opening:
        if _library is None:
            _library = Library(find_library())
        return _library

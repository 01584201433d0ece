"""The one kind of error of the backend and its translation to gRPC status codes."""

from __future__ import annotations

import enum

import grpc

# A gRPC message travels as a header, and clients refuse headers above 8 KiB; percent-encoding may treble a byte.
MAX_MESSAGE_CHARACTERS = 2000


class Status(enum.IntEnum):
    """vllm_status of vllm.h."""

    OK = 0
    INVALID_ARGUMENT = 1
    MODEL_LOAD = 2
    RUNTIME = 3
    UNKNOWN = 4


_CODES = {
    Status.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    Status.MODEL_LOAD: grpc.StatusCode.FAILED_PRECONDITION,
    Status.RUNTIME: grpc.StatusCode.INTERNAL,
    Status.UNKNOWN: grpc.StatusCode.INTERNAL,
}


class BackendError(Exception):
    """Ends an RPC with a status code and one sentence."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(one_line(message))
        self.code = code


def one_line(message: str) -> str:
    """The message without line breaks and undecodable characters, cut to what a gRPC status can carry."""
    flat = " ".join(message.split()).encode("utf-8", "replace").decode("utf-8")
    if len(flat) <= MAX_MESSAGE_CHARACTERS:
        return flat
    return flat[:MAX_MESSAGE_CHARACTERS] + "..."


def invalid_argument(message: str) -> BackendError:
    return BackendError(grpc.StatusCode.INVALID_ARGUMENT, message)


def model_not_loaded() -> BackendError:
    """The host loads the model again when it reads these words."""
    return BackendError(grpc.StatusCode.FAILED_PRECONDITION, "model not loaded")


def identity_mismatch(loaded: str, asked: str) -> BackendError:
    """The host's router reacts to NOT_FOUND together with the words "model identity mismatch"."""
    return BackendError(
        grpc.StatusCode.NOT_FOUND,
        f"model identity mismatch: this backend holds {loaded!r}, the request is for {asked!r}",
    )


def engine_error(status: int, message: str) -> BackendError:
    """An error of the library, by the vllm_status it gave."""
    try:
        code = _CODES[Status(status)]
    except (KeyError, ValueError):
        code = grpc.StatusCode.INTERNAL
    return BackendError(code, message or f"the engine failed with status {status} and no message")

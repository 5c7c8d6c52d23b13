"""The errors of a model, the texts that callers see of them, and texts that models give."""

from __future__ import annotations

import os
import traceback
from enum import IntEnum
from types import TracebackType
from typing import Any

from .memory_limit import memory_limit

# Named without being imported, which would take 10 ms.
_FUTURES = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "concurrent", "futures") + os.sep
OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class TritonModelException(Exception):  # noqa: N818 - the name is part of the models' interface
    """What every function of ``triton_python_backend_utils`` raises, and what a model may raise itself."""


class ServerGoneError(TritonModelException):
    """The server closed its end of the connection."""


class ErrorCode(IntEnum):
    """The codes of ``TritonError``."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    # Of its own accord, such an enumeration shows its name under some versions of Python and its number under others.
    def __str__(self) -> str:
        return f"ErrorCode.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


GRPC_CODES: dict[int, int] = {
    ErrorCode.UNKNOWN: 2,
    ErrorCode.INTERNAL: 13,
    ErrorCode.NOT_FOUND: 5,
    ErrorCode.INVALID_ARG: 3,
    ErrorCode.UNAVAILABLE: 14,
    ErrorCode.UNSUPPORTED: 12,
    ErrorCode.ALREADY_EXISTS: 6,
    ErrorCode.CANCELLED: 1,
}
CODES_BY_GRPC: dict[int, ErrorCode] = {number: ErrorCode(code) for code, number in GRPC_CODES.items()}
# DEADLINE_EXCEEDED has no code of its own here; like UNAVAILABLE, another try may help.
CODES_BY_GRPC[4] = ErrorCode.UNAVAILABLE


class TritonError:
    """An error response to one request: a text and one of the codes that are attributes of this class."""

    __slots__ = ("_code", "_message")

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    def __init__(self, message: str, code: int = ErrorCode.INTERNAL) -> None:
        self._message = as_text(message, "TritonError: the message")
        try:
            self._code = ErrorCode(code)
        except ValueError:
            raise TypeError(f"TritonError: the code must be one of TritonError's codes, found {code!r}") from None

    def code(self) -> ErrorCode:
        """The code."""
        return self._code

    def message(self) -> str:
        """The text."""
        return self._message


class FailedError(TritonError):
    """The error response to a request in which the model failed; ``TritonError`` itself is one that a model chose."""

    __slots__ = ()


def describe(error: BaseException) -> str:
    """The text of an exception as callers see it: its type, its text and the places it passed, the deepest first."""
    # The reference's words for an exception without a text, such as of a bare ``assert``.
    headline = f"{type(error).__name__}: {_text(error) + memory_limit.hint(error) or '<EMPTY MESSAGE>'}"
    places = _places(error.__traceback__)
    return headline + "\n\nAt:\n" + "".join(places) if places else headline


def full_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, from where it enters the model's own code."""
    trace = error.__traceback__
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:
        # The ``__str__`` of a model's own exception may fail as well.
        return f"<its text cannot be shown: {type(second).__name__}>"


def _places(trace: TracebackType | None) -> list[str]:
    entries = [(frame.f_code, line) for frame, line in traceback.walk_tb(trace)]
    # Only those in front: a model may use futures itself, and those places are of interest.
    while entries and _leads_to_models(entries[0][0].co_filename):
        del entries[0]
    return [
        f"  {code.co_filename}({line}): {code.co_name}\n"
        for code, line in reversed(entries)
        if not _is_machinery(code.co_filename)
    ]


def _is_machinery(file: str) -> bool:
    return file.startswith((OWN_FOLDER, "<frozen importlib"))


def _leads_to_models(file: str) -> bool:
    """Whether it is code of the worker, or of the library between the worker and a model's coroutine."""
    return _is_machinery(file) or file.startswith(_FUTURES)


def as_text(value: Any, what: str) -> str:
    """A ``str`` as it is, ``bytes`` as the UTF-8 that they hold.

    The reference takes both wherever it takes a text, so models pass elements of BYTES tensors on as they are.

    Raises:
        TypeError: it is neither; the text begins with ``what``.
        UnicodeDecodeError: the bytes are not UTF-8.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    raise TypeError(f"{what} must be a str, or bytes in UTF-8, found {value!r} of type {type(value)}")

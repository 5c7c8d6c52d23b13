"""The tree of errors. Each class has its HTTP and gRPC status, whether a retry can help, and the label it is counted
by.

A message is written for the person who can act on it: what was found, what was expected, where, and what to change.
``http_status`` and ``grpc_code`` follow the status map of the protocol; ``reason`` is the label under which a failed
request is counted in ``nv_inference_request_failure``.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

MAX_TEXT: Final = 4096
"""The most characters of an error's text that are sent to a caller; the log has the whole text."""
INTERNAL_FAILURE: Final = "internal error while the request was handled; the server's log has the details"
"""The text for a request that met a fault of the server itself."""


class NaiadError(Exception):
    """Base of every error that Naiad raises on purpose."""

    http_status: ClassVar[int] = 500
    grpc_code: ClassVar[int] = 13
    reason: ClassVar[str] = "OTHER"
    retryable: ClassVar[bool] = False


class InternalError(NaiadError):
    """A fault of the server or of a model, not of the caller."""


class InvalidArgumentError(NaiadError):
    """The request of the caller is wrong and cannot be served."""

    http_status = 400
    grpc_code = 3


class NotFoundError(NaiadError):
    """The named model, version or resource does not exist."""

    http_status = 404
    grpc_code = 5


class AlreadyExistsError(NaiadError):
    """A name that must be new is taken."""

    http_status = 400
    grpc_code = 6


class UnsupportedError(NaiadError):
    """A well-formed request for something that this server, model or build does not support."""

    http_status = 501
    grpc_code = 12


class UnavailableError(NaiadError):
    """Not now: the same request may succeed later or elsewhere."""

    http_status = 503
    grpc_code = 14
    retryable = True


class CancelledError(NaiadError):
    """The caller cancelled the request."""

    http_status = 400
    grpc_code = 1
    reason = "CANCELED"


class MalformedRequestError(InvalidArgumentError):
    """The bytes of a request do not follow the protocol (JSON syntax, a field's type, a size)."""


class QueueFullError(UnavailableError):
    """A bounded queue has no room (``max_queue_size``), or the server as a whole has none."""

    reason = "REJECTED"


class TooManyRequestsError(QueueFullError):
    """``QueueFullError`` of a server with ``--overload-status=429``."""

    http_status = 429
    grpc_code = 8


class RequestTimeoutError(UnavailableError):
    """A request waited longer than its queue policy or its own deadline allows."""

    reason = "REJECTED"


class ExecutionTimeoutError(UnavailableError):
    """A model exceeded its run time (``execute-timeout-seconds``), and its process was ended."""

    http_status = 504
    grpc_code = 4
    reason = "BACKEND"


class UnauthenticatedError(NaiadError):
    """The caller sent no API key, or an unknown one.

    ``reason_code`` is the word of RFC 6750 for it; "" when nothing was shown.
    """

    http_status = 401
    grpc_code = 16

    def __init__(self, message: str, reason_code: str = "") -> None:
        super().__init__(message)
        self.reason_code = reason_code


class ScopeError(NaiadError):
    """The caller's API key lacks the scope; ``scope`` names the scopes that would suffice."""

    http_status = 403
    grpc_code = 7

    def __init__(self, message: str, scope: str) -> None:
        super().__init__(message)
        self.scope = scope


class RestrictedError(NaiadError):
    """A feature that is served only to callers that send a certain header. The codes are the protocol's."""

    http_status = 403
    grpc_code = 14


class RateLimitError(NaiadError):
    """An API key exceeds its limit of requests; the next one would pass in ``retry_s`` seconds."""

    http_status = 429
    grpc_code = 8
    reason = "REJECTED"
    retryable = True

    def __init__(self, message: str, retry_s: int) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class ResponseBacklogError(NaiadError):
    """A caller reads the responses of a decoupled model more slowly than the model sends them."""

    http_status = 429
    grpc_code = 8
    reason = "CANCELED"


class ServerStoppingError(UnavailableError):
    """The server or the model is shutting down and takes no new requests."""

    reason = "REJECTED"


class BackendError(InternalError):
    """The model itself failed during its run; the message has the framework's own text."""

    reason = "BACKEND"


class GpuLostError(UnavailableError):
    """A kernel has failed, and the process can use the GPU no more until it is restarted."""

    reason = "BACKEND"


class ModelLoadError(InvalidArgumentError):
    """A model version cannot be loaded."""


class BackendUnavailableError(ModelLoadError):
    """The framework that a model needs is not installed or not known."""


class StoreError(ModelLoadError):
    """A remote repository, or the local mirror of it, cannot be used as it is."""

    http_status = 500
    grpc_code = 13


class StoreUnreachableError(StoreError):
    """A remote repository does not respond, or only with temporary errors."""

    http_status = 503
    grpc_code = 14
    retryable = True


class OptionError(NaiadError):
    """A command-line option, environment variable or configuration key of the server is wrong."""


class ConfigError(InvalidArgumentError):
    """A wrong model configuration.

    ``file`` and ``line`` (from 1) are the place, when known; ``str(error)`` is the bare text for API clients and
    ``located()`` the text with the place in front.
    """

    def __init__(self, message: str, file: Path | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.line = line

    def located(self) -> str:
        """The message as ``file:line: message``, without the parts that are unknown."""
        if self.file is None:
            return str(self)
        place = f"{self.file}:{self.line}" if self.line is not None else str(self.file)
        return f"{place}: {self}"


def first_line(error: BaseException) -> str:
    """The first line that the text of a foreign exception has, or the name of its class when it has no text."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def caller_text(error: BaseException | str) -> str:
    """The text for a caller: all of it, or its beginning and its end when it is longer than ``MAX_TEXT``.

    A text may quote a model's exception, which can be of any length. The end of a traceback names the exception.
    """
    text = str(error)
    if len(text) <= MAX_TEXT:
        return text
    left_out = f" ... [{len(text) - MAX_TEXT} characters left out] ... "
    return text[: MAX_TEXT // 2] + left_out + text[-MAX_TEXT // 2 :]


def error_of_code(code: int, message: str) -> NaiadError:
    """The error for a gRPC status code that a model chose (``pb_utils.TritonError``)."""
    return _BY_CODE.get(code, BackendError)(message)


def error_of_name(name: str, message: str) -> NaiadError:
    """The error that failed the loading of a model in another process, by the name of its class."""
    return _BY_NAME.get(name, ModelLoadError)(message)


class UnknownError(NaiadError):
    """A model failed with the code UNKNOWN."""

    http_status = 400
    grpc_code = 2
    reason = "BACKEND"


# INTERNAL is a ``BackendError`` here: a model chose the code, so the failure is counted as the model's.
_BY_CODE: dict[int, type[NaiadError]] = {
    kind.grpc_code: kind
    for kind in (
        UnknownError,
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        UnsupportedError,
        UnavailableError,
        CancelledError,
        BackendError,
    )
}
_BY_NAME: dict[str, type[NaiadError]] = {
    kind.__name__: kind
    for kind in (
        *_BY_CODE.values(),
        BackendUnavailableError,
        ConfigError,
        InternalError,
        MalformedRequestError,
    )
}

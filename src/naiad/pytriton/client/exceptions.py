"""Errors of the clients."""

from __future__ import annotations


class PyTritonClientError(Exception):
    """Base of the errors here."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self._message = message

    def __str__(self) -> str:
        return self._message

    @property
    def message(self) -> str:
        """The text."""
        return self._message


class PyTritonClientValueError(PyTritonClientError):
    """An argument is wrong."""


class PyTritonClientInvalidUrlError(PyTritonClientValueError):
    """An address is none."""


class PyTritonClientTimeoutError(PyTritonClientError):
    """The server, the model or a response did not come in time, or the server could not be reached."""


class PyTritonClientModelUnavailableError(PyTritonClientError):
    """The server does not have the model."""


class PyTritonClientClosedError(PyTritonClientError):
    """The client is closed."""


class PyTritonClientModelDoesntSupportBatchingError(PyTritonClientError):
    """``infer_batch`` for a model that does not batch."""


class PyTritonClientInferenceServerError(PyTritonClientError):
    """The server or the inference function failed; the text is theirs."""


class PyTritonClientQueueFullError(PyTritonClientError):
    """``FuturesModelClient`` has no room for a request."""

"""Errors of binding and of inference functions."""

from __future__ import annotations


class PyTritonError(Exception):
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


class PyTritonValidationError(PyTritonError):
    """A configuration, or what a function returned, is wrong."""


class PyTritonInvalidOperationError(PyTritonError):
    """A call that is not possible now."""


class PyTritonBadParameterError(PyTritonError):
    """An argument is wrong."""


class PyTritonModelConfigError(PyTritonError):
    """A model configuration is wrong."""


class PyTritonUnrecoverableError(PyTritonError):
    """An inference function cannot run again: the server stops."""


class PyTritonRuntimeError(PyTritonError):
    """Any other failure of an inference function."""

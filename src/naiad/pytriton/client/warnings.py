"""Warnings of the clients."""

from __future__ import annotations


class PyTritonWarning(UserWarning):
    """Base of the warnings here."""


class NotSupportedTimeoutWarning(PyTritonWarning):
    """Never given here: every call has a time limit."""

"""Errors of the data of requests."""

from __future__ import annotations

from naiad.errors import InvalidArgumentError


class PerfInputError(InvalidArgumentError):
    """Requests cannot be made: of the options, the files of the data and the model's inputs, one does not fit."""

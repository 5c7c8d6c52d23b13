"""Requests of several callers that a model runs as one, because it puts their rows together anyway."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from naiad.request import InferRequest, RequestOptions


class GroupOptions(RequestOptions):
    """The options of a group of ``rows`` requests, each with one row and otherwise with ``options``."""

    __slots__ = ()
    is_group: ClassVar[bool] = True

    def __init__(self, options: RequestOptions, rows: int) -> None:
        self.take_over(options)
        self.rows = rows


class RequestGroup(InferRequest):
    """Requests of one row each that are queued and run as one request with as many rows.

    They arrived one after another; ``received_ns`` and ``queued_ns`` are those of the first. Each counts as a single
    request. A request can leave the group until a batch has taken it.

    Attributes:
        is_taken: a batch has taken it.
    """

    __slots__ = ("is_taken",)

    @property
    def count(self) -> int:
        """The requests that it has."""
        return self.options.rows

    def take(self) -> int:
        self.is_taken = True
        return self.options.rows

    @abstractmethod
    def singles(self) -> Sequence[InferRequest]:
        """The requests, each of which responds to its own caller."""

    @abstractmethod
    def leave(self, request: InferRequest) -> None:
        """Remove one of ``singles``, which is not the last one."""

"""A loaded model whose part the test plays: it keeps the requests, and the test answers them as it likes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from naiad.request import InferRequest
from support.http_application import House


class PlayedModel:
    """What reaches the model ``name`` of a house, which runs nothing itself any more.

    Attributes:
        requests: those submitted, in their order.
        cancelled: those given up.
        held: those whose callers take nothing for now, each with the patience in milliseconds.
    """

    def __init__(self, house: House, name: str, decoupled: bool = False, backend: str = "python") -> None:
        self.requests: list[InferRequest] = []
        self.cancelled: list[InferRequest] = []
        self.model: Any = house.engine.find(name, "")
        self.model.spec = replace(self.model.spec, decoupled=decoupled, backend=backend)
        self.model.submit = self.requests.append
        self.model.cancel = self.cancelled.append
        self.held: dict[InferRequest, int] = {}
        self.model.pause = self.held.__setitem__
        self.model.resume = self.held.pop

    @property
    def last(self) -> InferRequest:
        """The newest request."""
        return self.requests[-1]

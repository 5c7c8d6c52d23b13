"""Requests whose answers are noted, and waited for with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic_ns
from typing import Protocol

import numpy as np

from naiad.errors import NaiadError
from naiad.request import InferRequest, RequestOptions
from support.event_loops import WAIT_S


class NotedRequest(InferRequest):
    """A request of this moment; ``done`` is set once it is answered."""

    __slots__ = ("answers", "done")

    def __init__(self, options: RequestOptions, inputs: Mapping[str, np.ndarray], id: str = "") -> None:
        super().__init__(options, inputs, id, monotonic_ns())
        self.answers: list[tuple[Mapping[str, np.ndarray], NaiadError | None]] = []
        self.done = asyncio.Event()

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        self.answers.append((outputs, error))
        self.done.set()

    async def outputs(self, within_s: float = WAIT_S) -> Mapping[str, np.ndarray]:
        """The outputs; raises the error that came instead."""
        outputs, error = await self._only_answer(within_s)
        if error is not None:
            raise error
        return outputs

    async def error(self, within_s: float = WAIT_S) -> NaiadError:
        """The error that came."""
        _, error = await self._only_answer(within_s)
        assert error is not None
        return error

    async def _only_answer(self, within_s: float) -> tuple[Mapping[str, np.ndarray], NaiadError | None]:
        await asyncio.wait_for(self.done.wait(), within_s)
        (answer,) = self.answers
        return answer


class Submits(Protocol):
    """A model, or what stands for one."""

    def submit(self, request: InferRequest) -> None:
        """As ``LoadedModel.submit``."""


def submit(model: Submits, *requests: InferRequest) -> None:
    """Hand requests in, in one turn of the loop."""
    for request in requests:
        model.submit(request)

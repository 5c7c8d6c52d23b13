"""Callers of one model: each sends one exchange at a time and checks what comes back."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import numpy as np

from naiad.client import AsyncClient, InferResult

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
Checked = tuple[Inputs, str, Array]
"""The inputs of a request, an output, and what it has to be."""

TOLERANCE = 1e-4
"""How far outputs may be from what is expected, relative to it: batches of other sizes add in other orders."""

sequence_ids = itertools.count(1)


class WrongOutputError(Exception):
    """A response is a success, and holds something else than it should."""


class Caller(Protocol):
    """Sends requests to one model, one after the other.

    Attributes:
        began_ns: when the sequence of the next request was begun, on the monotonic clock; 0 without one.
    """

    began_ns: int

    async def call(self, client: AsyncClient, now_ns: int) -> None:
        """Send the next request, which begins now, and check its responses.

        Raises:
            NaiadError: the server refused it, or the connection failed.
            WrongOutputError: a response is wrong.
        """
        ...

    def failed(self) -> None:
        """The last request failed: a sequence begins anew."""
        ...


class UnaryCaller:
    """Requests that have one response each and do not depend on each other.

    Args:
        model: its name.
        next_request: makes the next request, and what it has to get.
    """

    began_ns = 0

    def __init__(self, model: str, next_request: Callable[[], Checked]) -> None:
        self._model = model
        self._next = next_request

    async def call(self, client: AsyncClient, now_ns: int) -> None:
        """One request."""
        inputs, output, expected = self._next()
        check(await client.infer(self._model, inputs), output, expected)

    def failed(self) -> None:
        """Nothing is left open."""


class SequenceCaller:
    """Sequences of a model that adds up its input, INPUT0 to OUTPUT0, both FP32 [1, 1].

    Args:
        length: draws how many requests the next sequence has.
    """

    def __init__(self, model: str, length: Callable[[], int]) -> None:
        self._model = model
        self._length = length
        self.began_ns = 0
        self.failed()

    def failed(self) -> None:
        """Go on with a new sequence."""
        self._id, self._total, self._left = 0, 0, 0

    async def call(self, client: AsyncClient, now_ns: int) -> None:
        """The next request of the sequence."""
        is_first = not self._left
        if is_first:
            self._id, self._total, self._left = next(sequence_ids), 0, self._length()
            self.began_ns = now_ns
        value = self._left
        self._left -= 1
        self._total += value
        parameters = {"sequence_id": self._id, "sequence_start": is_first, "sequence_end": not self._left}
        inputs = {"INPUT0": np.full((1, 1), value, np.float32)}
        found = await client.infer(self._model, inputs, parameters=parameters)
        check(found, "OUTPUT0", np.full((1, 1), self._total, np.float32))


class StreamCaller:
    """Streams of a decoupled model over gRPC.

    Args:
        next_stream: makes the inputs of the next request, the output to look at, and what it has to be in turn.
        abandons: says whether the next stream is left after its first response.
    """

    began_ns = 0

    def __init__(
        self, model: str, next_stream: Callable[[], tuple[Inputs, str, list[Array]]], abandons: Callable[[], bool]
    ) -> None:
        self._model = model
        self._next = next_stream
        self._abandons = abandons

    async def call(self, client: AsyncClient, now_ns: int) -> None:
        """One request with all of its responses, or with the first."""
        inputs, output, expected = self._next()
        wanted = 1 if self._abandons() else len(expected)
        count = 0
        responses: AsyncIterator[InferResult]
        async with aclosing(client.stream(self._model, inputs)) as responses:
            async for found in responses:
                if count == len(expected):
                    raise WrongOutputError(f"{self._model}: more than {count} responses")
                check(found, output, expected[count])
                count += 1
                if count == wanted < len(expected):
                    return
        if count < len(expected):
            raise WrongOutputError(f"{self._model}: {count} responses in place of {len(expected)}")

    def failed(self) -> None:
        """Nothing is left open."""


def check(found: InferResult, output: str, expected: Array) -> None:
    """Compare an output.

    Raises:
        WrongOutputError: it is not there, or another.
    """
    array = found.get(output)
    if array is None or array.shape != expected.shape:
        shape = None if array is None else array.shape
        raise WrongOutputError(f"{found.model}: '{output}' has the shape {shape} in place of {expected.shape}")
    is_same = (
        np.allclose(array, expected, TOLERANCE, TOLERANCE)
        if np.issubdtype(expected.dtype, np.floating)
        else np.array_equal(array, expected)
    )
    if not is_same:
        raise WrongOutputError(f"{found.model}: '{output}' has other elements than expected")

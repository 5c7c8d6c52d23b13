"""The way to a model that runs on the loop of the load generator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from naiad.errors import NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.perf.steps import TensorValue
from naiad.perf.target.in_process.request import EngineRequest, EngineRequestParts
from naiad.perf.target.protocol import Place, Problem, ResponseListener
from naiad.perf.target.validation import find_difference
from naiad.request import Array
from naiad.wire.v2.response import datatype_of, tensor_bytes

clock = time.monotonic_ns


class EnginePlace(Place):
    """Room for one request to a model."""

    __slots__ = ("_is_streaming", "_listener", "_loop", "_model", "_problem")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listener: ResponseListener, model: ServingModel, *, is_streaming: bool
    ) -> None:
        super().__init__()
        self._is_streaming = is_streaming
        self._loop = loop
        self._listener = listener
        self._model = model
        self._problem: Problem | None = None

    def start(self, request: EngineRequestParts, began_ns: int, now_ns: int) -> None:
        """Submit a request in the next turn: a model may respond within the call, and so start the one after it."""
        self.request = request
        self.began_ns = began_ns
        self.last_ns = 0
        self._problem = None
        self._loop.call_soon(self._submit)

    def _submit(self) -> None:
        parts: EngineRequestParts = self.request
        try:
            self._model.submit(EngineRequest(self, parts.options, parts.inputs, clock()))
        except NaiadError as error:
            self.take(None, error, is_final=True)

    def take(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, *, is_final: bool) -> None:
        """One response."""
        now = clock()
        parts: EngineRequestParts | None = self.request
        # The channel was closed meanwhile.
        if parts is None:
            return
        if error is not None:
            self._problem = self._problem or (type(error).__name__.removesuffix("Error"), str(error))
        elif outputs is not None:
            if parts.keeps_outputs:
                parts.last_response = tuple(self._values(outputs).values())
            if self._is_streaming:
                self._listener.responded(self, now)
                self.last_ns = now
            if parts.expected and self._problem is None:
                self._problem = find_difference(parts.expected, lambda: self._values(outputs))
        if is_final:
            self.request = None
            self._listener.completed(self, self.last_ns or now, self._problem)

    def _values(self, outputs: Mapping[str, Array]) -> dict[str, TensorValue]:
        found = {}
        for name, array in outputs.items():
            datatype = datatype_of(array, self._model.spec.outputs[name].dtype)
            found[name] = TensorValue(name, datatype.wire, tuple(array.shape), bytes(tensor_bytes(array, datatype)))
        return found


class CountsRequest:
    """A question for the counts of the models.

    Attributes:
        body: the last answer.
    """

    def __init__(self) -> None:
        self.body = b""


class CountsPlace(Place):
    """Room for one ``CountsRequest``."""

    __slots__ = ("_count", "_listener", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: ResponseListener, count: Callable[[], bytes]) -> None:
        super().__init__()
        self._loop = loop
        self._listener = listener
        self._count = count

    def start(self, request: CountsRequest, began_ns: int, now_ns: int) -> None:
        """Respond in the next turn."""
        self.request = request
        self._loop.call_soon(self._respond)

    def _respond(self) -> None:
        self.request.body = self._count()
        self._listener.completed(self, clock(), None)


class EngineChannel:
    """Places without a socket: they are open as soon as they are made."""

    places: Sequence[Place]

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        self.is_open = True

    @property
    def is_reached(self) -> bool:
        """There is nothing between it and the model."""
        return True

    def fileno(self) -> int:
        """There is no socket."""
        return -1

    def connect(self) -> None:
        """Nothing is to be connected."""

    def receive(self) -> None:
        """Nothing arrives here: the loop calls the places."""

    def handle(self, mask: int) -> None:
        """No socket has events."""

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Responses that are still to come are not heard any more."""
        for place in self.places:
            place.request = None

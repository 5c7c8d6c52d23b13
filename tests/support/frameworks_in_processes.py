"""Models whose instances are processes, behind the same calls as an instance in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np

from naiad.backend_api.backend import Arrays, BackendContext
from naiad.backends.out_of_process.backend import OutOfProcessBackend
from naiad.backends.out_of_process.mode import Execution
from naiad.config.spec import ModelSpec
from naiad.errors import NaiadError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.worker.shared_process import SharedProcesses
from naiad.request import InferRequest, RequestOptions

WAIT_S = 30.0


class Asked(InferRequest):
    """A request whose answer is a future."""

    __slots__ = ("answer",)

    def __init__(self, inputs: Arrays, outputs: Sequence[str]) -> None:
        rows = next((a.shape[0] for a in inputs.values()), 1)
        shapes = tuple((n, a.shape[1:]) for n, a in inputs.items())
        super().__init__(RequestOptions(tuple(outputs), rows, shapes), inputs)
        self.answer: Future[Mapping[str, np.ndarray]] = Future()

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(outputs)


class Hosted:
    """A loaded model on an event loop of its own."""

    def __init__(self, model: LoadedModel, loop: asyncio.AbstractEventLoop) -> None:
        self.model = model
        self._loop = loop

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The outputs, or the error raised."""
        asked = Asked(inputs, outputs)
        self._loop.call_soon_threadsafe(self.model.submit, asked)
        return asked.answer.result(WAIT_S)


@contextmanager
def looping() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def hosted(
    name: str, at: BackendContext, spec: ModelSpec, way: str, shared: SharedProcesses | None = None
) -> Iterator[Hosted]:
    """A model that is served by processes (``way``: process or shared)."""
    backend = OutOfProcessBackend(name, at, Execution(way), shared or SharedProcesses())
    with looping() as loop:
        try:
            backend.start(spec)
        except BaseException:
            backend.close()
            raise
        model = LoadedModel(spec, 1, backend, loop)
        model.start()
        try:
            yield Hosted(model, loop)
        finally:
            assert model.close(WAIT_S)
            asyncio.run_coroutine_threadsafe(_detach(model), loop).result(WAIT_S)


async def _detach(model: LoadedModel) -> None:
    model.detach()

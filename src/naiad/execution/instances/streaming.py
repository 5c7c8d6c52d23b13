"""An instance in a thread with an asyncio loop of its own, whose requests get their responses from coroutines.

The thread gets a request by one callback, and hands each response over by one. It waits for the event loop of the
server after some responses that were not taken yet, and while the caller of a request does not read.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from time import monotonic_ns
from typing import Final, Protocol

from naiad.backend_api.backend import Arrays
from naiad.backend_api.streaming import StreamingInstance
from naiad.config.spec import ModelSpec
from naiad.errors import CancelledError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.idle_callback import IdleCallback
from naiad.execution.instances.instance_loop import InstanceLoop
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.runner import run_failed
from naiad.request import Array, InferRequest, request_label
from naiad.tensor.packed_bytes import with_unpacked
from naiad.worker.ipc.frames import FLAG_EMPTY, FLAG_ERROR, FLAG_FINAL

logger = logging.getLogger("naiad")

MAX_UNTAKEN: Final = 64
"""How many responses to a request may wait for the event loop before its model waits."""


class StreamEventSink(Protocol):
    """Takes the responses of streaming instances and of threads that get requests, on the event loop."""

    def worker_completed(self, instance: ModelInstance, batch: Batch, outputs: Sequence[Mapping[str, Array]]) -> None:
        """Take the one response of each request of a batch, after which the instance can take the next one."""

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """Take one response, final or not, to a request of the batch."""

    def step_finished(self, instance: ModelInstance, batch: Batch) -> None:
        """Note that the instance can take the next batch; requests of this one may be open."""


class _Stream:
    """A request whose responses are being made. The thread reads what the event loop sets, and the other way round."""

    __slots__ = ("batch", "is_cancelled", "pause_s", "posted", "request", "taken", "task", "wake")

    def __init__(self, request: InferRequest, batch: Batch) -> None:
        self.request = request
        self.batch = batch
        self.task: asyncio.Task[None] | None = None
        self.wake = asyncio.Event()
        # Two counters, as each has one writer: the thread, and the event loop.
        self.posted = self.taken = 0
        self.is_cancelled = False
        # How long it may be paused at most, 0 while it is not.
        self.pause_s = 0.0

    @property
    def waits(self) -> bool:
        """Whether its model has to wait before the next response."""
        return not self.is_cancelled and (self.pause_s > 0 or self.posted - self.taken >= MAX_UNTAKEN)


class StreamingThreadInstance(ModelInstance):
    """Runs a ``StreamingInstance`` in its own thread.

    Args:
        name: of the instance and of its thread.
        spec: of the model.
        create: makes the instance; called in the new thread.
        events: takes the responses.
        loop: the event loop of the server.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        create: Callable[[], StreamingInstance],
        events: StreamEventSink,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self._spec = spec
        self._thread = InstanceLoop(name, create)
        self._events = events
        self._loop = loop
        self._open: dict[InferRequest, _Stream] = {}
        # The batch after which the instance was full, so that it could not be freed yet.
        self._full: Batch | None = None
        self._freed: asyncio.Handle | None = None
        self._max_open = 1
        self._on_idle = IdleCallback()

    # Life

    def start(self) -> None:
        """Create the instance and wait until it is there; called by a loading thread.

        Raises:
            NaiadError: the instance could not be created.
        """
        self._thread.start()
        self._max_open = self._thread.created.max_open

    def stop(self) -> None:
        """Let the thread close the instance and end; what it still runs is cancelled."""
        self._thread.stop()

    def join(self, timeout: float | None = None) -> bool:
        return self._thread.join(timeout)

    def detach(self) -> None:
        if self._freed is not None:
            self._freed.cancel()
        self._open.clear()
        self._full = None
        self._on_idle.notify(self.is_idle)

    @property
    def is_idle(self) -> bool:
        return not self._open

    def when_idle(self, callback: Callable[[], object]) -> None:
        self._on_idle.set(callback, self.is_idle)

    # On the event loop of the server

    def run(self, batch: Batch) -> None:
        """Begin with the requests of a batch, which ``StreamEventSink.worker_responded`` gets the responses of."""
        batch.start_ns = batch.input_ns = batch.infer_ns = batch.end_ns = monotonic_ns()
        for request in batch.requests:
            stream = self._open[request] = _Stream(request, batch)
            self._thread.soon(self._begin, stream)
        if len(self._open) < self._max_open:
            # The next batch may not begin before this one has been handed over.
            self._freed = self._loop.call_soon(self._events.step_finished, self, batch)
        else:
            self._full = batch

    def cancel(self, request: InferRequest) -> None:
        stream = self._open.get(request)
        if stream is not None:
            stream.is_cancelled = True
            self._thread.soon(self._abort, stream)

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        stream = self._open.get(request)
        if stream is not None:
            # A request that others wait for does not wait for ever.
            stream.pause_s = backpressure_timeout_ms / 1000 if self._max_open == 1 else math.inf

    def resume(self, request: InferRequest) -> None:
        stream = self._open.get(request)
        if stream is not None:
            stream.pause_s = 0.0
            self._thread.soon(stream.wake.set)

    def _take(self, stream: _Stream, response: Response) -> None:
        stream.taken += 1
        if stream.posted - stream.taken == MAX_UNTAKEN - 1:
            self._thread.soon(stream.wake.set)
        if self._open.get(stream.request) is not stream:
            # The model was given up meanwhile.
            return
        if response.final:
            del self._open[stream.request]
        self._events.worker_responded(stream.request, response, stream.batch)
        if response.final:
            if self._full is not None:
                batch, self._full = self._full, None
                self._events.step_finished(self, batch)
            self._on_idle.notify(self.is_idle)

    # In the thread

    def _begin(self, stream: _Stream) -> None:
        stream.task = self._thread.task(self._respond(stream))
        if stream.is_cancelled:
            stream.task.cancel()

    def _abort(self, stream: _Stream) -> None:
        stream.wake.set()
        if stream.task is not None:
            stream.task.cancel()

    async def _respond(self, stream: _Stream) -> None:
        """Make all responses to a request. The last one is sent whatever happens."""
        request, final = stream.request, Response(0, None, None, FLAG_FINAL | FLAG_EMPTY)
        try:
            inputs = with_unpacked(request.inputs)
            if self._spec.decoupled:
                await self._send_all(stream, inputs)
            else:
                async for outputs in self._thread.created.responses(inputs):
                    final = Response(0, self._wanted(request, outputs), None, FLAG_FINAL)
        except NaiadError as error:
            final = Response(0, None, error, FLAG_FINAL | FLAG_ERROR)
        except asyncio.CancelledError:
            text = f"{request_label(request.id)}the request was cancelled by its caller"
            final = Response(0, None, CancelledError(text), FLAG_FINAL | FLAG_ERROR)
        # Whatever a model raises, SystemExit included, ends its request and nothing else.
        except BaseException as error:
            failed = run_failed(self._spec.name, error)
            final = Response(0, None, failed, FLAG_FINAL | FLAG_ERROR)
        if not self._spec.decoupled:
            stream.batch.infer_ns = stream.batch.end_ns = monotonic_ns()
        self._post(stream, final)

    async def _send_all(self, stream: _Stream, inputs: Arrays) -> None:
        async with aclosing(self._thread.created.responses(inputs)) as responses:
            begun_ns = monotonic_ns()
            async for outputs in responses:
                self._post(stream, Response(0, self._wanted(stream.request, outputs), None, 0, begun_ns))
                while stream.waits:
                    await self._wait_for_caller(stream)
                if stream.is_cancelled:
                    raise asyncio.CancelledError
                begun_ns = monotonic_ns()

    async def _wait_for_caller(self, stream: _Stream) -> None:
        """Wait until the event loop takes a response, or the caller reads on or has kept others waiting for long."""
        stream.wake.clear()
        # Looked at again, as the event loop may have changed it before ``clear``.
        if stream.waits:
            try:
                await asyncio.wait_for(stream.wake.wait(), stream.pause_s if 0 < stream.pause_s < math.inf else None)
            except TimeoutError:
                stream.pause_s = 0.0

    def _wanted(self, request: InferRequest, outputs: Arrays) -> Arrays:
        return {name: outputs[name] for name in request.options.outputs}

    def _post(self, stream: _Stream, response: Response) -> None:
        stream.posted += 1
        try:
            self._loop.call_soon_threadsafe(self._take, stream, response)
        except RuntimeError:
            # The loop is closed: the server did not wait for this thread.
            logger.debug("a response of '%s' came after the end of the server", self.name)

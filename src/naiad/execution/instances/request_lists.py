"""An instance in a thread with an asyncio loop, whose model gets the requests of a batch as a list.

Unlike ``StreamingThreadInstance`` it runs a batch as a whole: one call of the model responds to all its requests.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import aclosing
from time import monotonic_ns

from naiad.backend_api.backend import Arrays
from naiad.backend_api.streaming import CallerRequest, RequestListInstance
from naiad.config.spec import ModelSpec
from naiad.errors import CancelledError, ExecutionTimeoutError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.idle_callback import IdleCallback
from naiad.execution.instances.instance_loop import InstanceLoop
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.runner import run_failed
from naiad.execution.instances.streaming import MAX_UNTAKEN, StreamEventSink
from naiad.request import InferRequest, Outputs, request_label
from naiad.tensor.packed_bytes import with_unpacked
from naiad.worker.ipc.frames import FLAG_EMPTY, FLAG_ERROR, FLAG_FINAL

logger = logging.getLogger("naiad")

_END = Response(0, None, None, FLAG_FINAL | FLAG_EMPTY)


class _OpenBatch:
    """A batch whose responses are being made. The thread reads what the event loop sets, and the other way round."""

    __slots__ = ("batch", "cancelled", "late", "pauses_s", "posted", "requests", "taken", "task", "wake")

    def __init__(self, batch: Batch, requests: Sequence[InferRequest]) -> None:
        self.batch = batch
        # Those that the model gets: not those that came too late for it.
        self.requests = requests
        self.task: asyncio.Task[None] | None = None
        self.wake = asyncio.Event()
        # Two counters, as each has one writer: the thread, and the event loop.
        self.posted = self.taken = 0
        self.cancelled: set[InferRequest] = set()
        # The requests whose callers do not read, with how long each may be paused.
        self.pauses_s: dict[InferRequest, float] = {}
        self.late: asyncio.TimerHandle | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether all callers have gone."""
        return len(self.cancelled) == len(self.requests)

    @property
    def waits(self) -> bool:
        """Whether its model has to wait before the next responses."""
        return not self.is_cancelled and (bool(self.pauses_s) or self.posted - self.taken >= MAX_UNTAKEN)


class RequestListThreadInstance(ModelInstance):
    """Runs a ``RequestListInstance`` in its own thread; arguments as ``StreamingThreadInstance``."""

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        create: Callable[[], RequestListInstance],
        events: StreamEventSink,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self._spec = spec
        self._thread = InstanceLoop(name, create)
        self._events = events
        self._loop = loop
        # The requests without their last response, and how many batches the model runs.
        self._open: dict[InferRequest, _OpenBatch] = {}
        self._running = 0
        # The batch after which the instance was full, so that it could not be freed yet.
        self._full: Batch | None = None
        self._freed: asyncio.Handle | None = None
        self._on_idle = IdleCallback()

    # Life

    def start(self) -> None:
        """Create the instance and wait until it is there; called by a loading thread.

        Raises:
            NaiadError: the instance could not be created.
        """
        self._thread.start()

    def stop(self) -> None:
        """Let the thread close the instance and end; what it still runs is cancelled."""
        self._thread.stop()

    def join(self, timeout: float | None = None) -> bool:
        return self._thread.join(timeout)

    def detach(self) -> None:
        if self._freed is not None:
            self._freed.cancel()
        for opened in self._open.values():
            if opened.late is not None:
                opened.late.cancel()
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
        """Begin with a batch, whose responses ``StreamEventSink.worker_responded`` gets."""
        now_ns = batch.start_ns = batch.input_ns = batch.infer_ns = batch.end_ns = monotonic_ns()
        limit_ns = round(1e9 * self._thread.created.deadline_s)
        requests: Sequence[InferRequest] = batch.requests
        if limit_ns:
            requests = [r for r in requests if not r.received_ns or now_ns - r.received_ns < limit_ns]
        opened = _OpenBatch(batch, requests)
        self._open.update(dict.fromkeys(batch.requests, opened))
        self._running += 1
        if limit_ns:
            self._watch(opened, limit_ns, now_ns)
        if requests:
            self._thread.soon(self._begin, opened)
        else:
            self._loop.call_soon(self._take_end, opened)
        if self._running < self._thread.created.max_open:
            # The next batch may not begin before this one has been handed over.
            self._freed = self._loop.call_soon(self._events.step_finished, self, batch)
        else:
            self._full = batch

    def _watch(self, opened: _OpenBatch, limit_ns: int, now_ns: int) -> None:
        """End the requests that came too late for the model at once, and the others at the deadline of the first."""
        late = [r for r in opened.batch.requests if r not in opened.requests]
        if late:
            self._loop.call_soon(self._end_late, opened, late, limit_ns / 1e9)
        if opened.requests:
            left_ns = limit_ns - now_ns + min(r.received_ns or now_ns for r in opened.requests)
            opened.late = self._loop.call_later(left_ns / 1e9, self._deadline_passed, opened, limit_ns / 1e9)

    def _deadline_passed(self, opened: _OpenBatch, limit_s: float) -> None:
        opened.late = None
        self._end_late(opened, opened.requests, limit_s)
        self._thread.soon(self._abort, opened)

    def _end_late(self, opened: _OpenBatch, requests: Sequence[InferRequest], limit_s: float) -> None:
        """Respond in the place of a model that takes too long. A call that does not await goes on to its end."""
        text = f"model '{self._spec.name}' did not respond within its deadline of {limit_s:g} s"
        for request in requests:
            if self._open.get(request) is opened:
                del self._open[request]
                opened.cancelled.add(request)
                error = ExecutionTimeoutError(request_label(request.id) + text)
                last = Response(0, None, error, FLAG_FINAL | FLAG_ERROR)
                self._events.worker_responded(request, last, opened.batch)
        logger.warning("%s", text)
        self._on_idle.notify(self.is_idle)

    def cancel(self, request: InferRequest) -> None:
        opened = self._open.get(request)
        if opened is not None and request in opened.requests:
            opened.cancelled.add(request)
            opened.pauses_s.pop(request, None)
            if opened.is_cancelled:
                self._thread.soon(self._abort, opened)
            else:
                self._thread.soon(opened.wake.set)

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        opened = self._open.get(request)
        if opened is not None and request not in opened.cancelled:
            # What others wait for, in this batch or behind it, does not wait for ever.
            is_alone = self._thread.created.max_open > 1 and len(opened.requests) == 1
            opened.pauses_s[request] = math.inf if is_alone else backpressure_timeout_ms / 1000

    def resume(self, request: InferRequest) -> None:
        opened = self._open.get(request)
        if opened is not None:
            opened.pauses_s.pop(request, None)
            self._thread.soon(opened.wake.set)

    def _take(self, opened: _OpenBatch, responses: Sequence[tuple[InferRequest, Response]]) -> None:
        opened.taken += 1
        if opened.posted - opened.taken == MAX_UNTAKEN - 1:
            self._thread.soon(opened.wake.set)
        for request, response in responses:
            # Not those that were given up meanwhile.
            if self._open.get(request) is opened:
                if response.final:
                    del self._open[request]
                    opened.pauses_s.pop(request, None)
                self._events.worker_responded(request, response, opened.batch)

    def _take_end(self, opened: _OpenBatch) -> None:
        if opened.late is not None:
            opened.late.cancel()
        self._running -= 1
        if self._full is not None:
            batch, self._full = self._full, None
            self._events.step_finished(self, batch)
        self._on_idle.notify(self.is_idle)

    # In the thread

    def _begin(self, opened: _OpenBatch) -> None:
        opened.task = self._thread.task(self._run(opened))
        if opened.is_cancelled:
            opened.task.cancel()

    def _abort(self, opened: _OpenBatch) -> None:
        opened.wake.set()
        if opened.task is not None:
            opened.task.cancel()

    async def _run(self, opened: _OpenBatch) -> None:
        try:
            await self._respond(opened, opened.requests)
        finally:
            self._hand_over(self._take_end, opened)

    async def _respond(self, opened: _OpenBatch, requests: Sequence[InferRequest]) -> None:
        """Make all responses to some requests of a batch. The last ones are sent whatever happens."""
        finals: Sequence[Response] = [_END] * len(requests)
        try:
            if self._spec.decoupled:
                await self._send_all(opened, requests)
            else:
                finals = await self._send_once(requests)
        except NaiadError as error:
            finals = _failed(requests, error)
        except asyncio.CancelledError:
            text = "the request was cancelled by its caller"
            finals = [_error(CancelledError(request_label(request.id) + text)) for request in requests]
        # Whatever a model raises, SystemExit included, ends its requests and nothing else.
        except BaseException as error:
            if len(requests) > 1 and self._spec.splits_failed:
                for request in requests:
                    await self._respond(opened, [request])
                return
            logger.warning("model '%s' failed", self._spec.name, exc_info=error)
            finals = _failed(requests, run_failed(self._spec.name, error))
        if not self._spec.decoupled:
            opened.batch.infer_ns = opened.batch.end_ns = monotonic_ns()
        self._post(opened, list(zip(requests, finals, strict=True)))

    async def _send_once(self, requests: Sequence[InferRequest]) -> list[Response]:
        async with aclosing(self._thread.created.responses(_given(requests))) as responses:
            async for outputs in responses:
                return [
                    Response(0, _wanted(request, made), None, FLAG_FINAL)
                    for request, made in zip(requests, outputs, strict=True)
                ]
        return [_END] * len(requests)

    async def _send_all(self, opened: _OpenBatch, requests: Sequence[InferRequest]) -> None:
        async with aclosing(self._thread.created.responses(_given(requests))) as responses:
            begun_ns = monotonic_ns()
            async for outputs in responses:
                made = [Response(0, _wanted(r, o), None, 0, begun_ns) for r, o in zip(requests, outputs, strict=True)]
                self._post(opened, list(zip(requests, made, strict=True)))
                # A model that never awaits would not let anybody cancel it.
                await asyncio.sleep(0)
                while opened.waits:
                    await _wait_for_callers(opened)
                if opened.is_cancelled:
                    raise asyncio.CancelledError
                begun_ns = monotonic_ns()

    def _post(self, opened: _OpenBatch, responses: list[tuple[InferRequest, Response]]) -> None:
        opened.posted += 1
        self._hand_over(self._take, opened, responses)

    def _hand_over(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop is closed: the server did not wait for this thread.
            logger.debug("a response of '%s' came after the end of the server", self.name)


async def _wait_for_callers(opened: _OpenBatch) -> None:
    """Wait until the event loop takes a response, or callers read on or have kept others waiting for long."""
    opened.wake.clear()
    # Looked at again, as the event loop may have changed it before ``clear``.
    if opened.waits:
        limit_s = min(tuple(opened.pauses_s.values()), default=math.inf)
        try:
            await asyncio.wait_for(opened.wake.wait(), limit_s if limit_s < math.inf else None)
        except TimeoutError:
            opened.pauses_s.clear()


def _given(requests: Sequence[InferRequest]) -> list[CallerRequest]:
    return [CallerRequest(with_unpacked(r.inputs), r.options.parameters, r.options.outputs) for r in requests]


def _wanted(request: InferRequest, outputs: Arrays) -> Arrays:
    wanted = {name: outputs[name] for name in request.options.outputs if name in outputs}
    return Outputs(wanted) if isinstance(outputs, Outputs) else wanted


def _failed(requests: Sequence[InferRequest], error: NaiadError) -> list[Response]:
    return [_error(error)] * len(requests)


def _error(error: NaiadError) -> Response:
    return Response(0, None, error, FLAG_FINAL | FLAG_ERROR)

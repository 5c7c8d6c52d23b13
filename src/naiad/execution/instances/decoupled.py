"""A decoupled instance on the event loop: its requests get any number of responses, step by step.

The next step is taken when the caller takes the response. A request whose caller does not is paused, and costs nothing
meanwhile; all others continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Final, Protocol

from naiad.backend_api.backend import Arrays
from naiad.backend_api.decoupled import DecoupledInstance, Delay, Step
from naiad.config.spec import ModelSpec
from naiad.errors import CancelledError, InternalError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.idle_callback import IdleCallback
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.runner import failed_to_start, run_failed
from naiad.request import InferRequest, request_label
from naiad.worker.ipc.frames import FLAG_EMPTY, FLAG_ERROR, FLAG_FINAL, FLAG_OWN

logger = logging.getLogger("naiad")

MAX_STEPS: Final = 64
"""The most steps of one request in one turn of the loop, so that other work has its turn."""
MAX_WARM_STEPS: Final = 10_000
"""How many steps of a request of a warm-up are taken: a model may respond without end."""


class StepEventSink(Protocol):
    """Takes the results of steps."""

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """Take one response, final or not, to a request of the batch."""

    def step_finished(self, instance: SteppedDecoupledInstance, batch: Batch) -> None:
        """Note that the instance can take the next batch; requests of this one may be open."""


class _OpenRequest:
    """A request whose steps are being taken, as the instance sees its caller."""

    __slots__ = ("batch", "begun_ns", "cut", "handle", "is_cancelled", "is_paused", "is_running", "request", "steps")

    def __init__(self, request: InferRequest, batch: Batch) -> None:
        self.request = request
        self.batch = batch
        self.steps: Iterator[Step] = iter(())
        self.handle: asyncio.Handle | None = None
        # Whether its wait ends when the caller has gone.
        self.cut = False
        self.is_cancelled = False
        self.is_paused = False
        self.is_running = False
        # When the outputs of the next response were begun, 0 when they are not.
        self.begun_ns = 0


class SteppedDecoupledInstance(ModelInstance):
    """Runs a decoupled instance. Everything but ``start``, ``stop`` and ``join`` happens on the event loop.

    Args:
        name: of the instance.
        spec: of the model.
        create: makes the instance.
        warm: called with the new instance, before it serves.
        events: takes the responses.
        loop: the event loop.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        create: Callable[[], DecoupledInstance],
        warm: Callable[[DecoupledInstance], None],
        events: StepEventSink,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self._spec = spec
        # The first response is the only one.
        self._responds_once = not spec.decoupled
        self._create = create
        self._warm = warm
        self._events = events
        self._loop = loop
        self._instance: DecoupledInstance | None = None
        self._open: dict[InferRequest, _OpenRequest] = {}
        self._batch: Batch | None = None
        self._busy: asyncio.Handle | None = None
        self._on_idle = IdleCallback()

    def start(self) -> None:
        """Create the instance and warm it up; called in a loading thread.

        Raises:
            NaiadError: that failed.
        """
        try:
            self._instance = self._create()
            self._warm(self._instance)
        except NaiadError:
            raise
        except BaseException as error:
            raise failed_to_start(self.name, error) from error

    def stop(self) -> None:
        """Close the instance; called in a thread, when nothing is in flight."""
        instance, self._instance = self._instance, None
        if instance is not None:
            try:
                instance.close()
            except BaseException:
                logger.exception("instance '%s' failed to close", self.name)

    def join(self, timeout: float | None = None) -> bool:
        """True: nothing runs in another thread."""
        return True

    def detach(self) -> None:
        """Drop open requests; the last call on the loop."""
        if self._busy is not None:
            self._busy.cancel()
        for one in self._open.values():
            if one.handle is not None:
                one.handle.cancel()
        self._open.clear()
        self._batch = None
        self._on_idle.notify(self.is_idle)

    @property
    def is_idle(self) -> bool:
        """Whether no request is open."""
        return not self._open and self._batch is None

    def when_idle(self, callback: Callable[[], object]) -> None:
        self._on_idle.set(callback, self.is_idle)

    # Requests

    def run(self, batch: Batch) -> None:
        """Begin with the requests of a batch.

        ``StepEventSink.step_finished`` is called when the next batch may begin, never before this returns.
        """
        instance = self._instance
        batch.start_ns = batch.input_ns = monotonic_ns()
        self._batch = batch
        # All are open before the first step, since its response may lead to the cancellation of any of them.
        opened = [_OpenRequest(request, batch) for request in batch.requests]
        busy_s = 0.0
        for one in opened:
            request = one.request
            self._open[request] = one
            try:
                if instance is None:
                    raise InternalError(f"instance '{self.name}' is not started")
                one.steps = instance.steps(request.inputs, request.options.outputs, one)
                busy_s = max(busy_s, instance.busy_s(request.inputs))
            except Exception as error:
                one.steps = _Failing(error)
        # Before the steps: a caller that cancels within its first response ends this wait.
        if busy_s:
            self._busy = self._loop.call_later(busy_s, self._free)
        else:
            self._busy = self._loop.call_soon(self._free)
        for one in opened:
            self._advance(one)

    def cancel(self, request: InferRequest) -> None:
        """Take the steps of a request whose caller has gone to their end, and send them to nobody."""
        one = self._open.get(request)
        if one is None:
            return
        one.is_cancelled = True
        # A paused request would not come to its end.
        one.is_paused = False
        if one.cut and one.handle is not None:
            one.handle.cancel()
            one.handle = None
        # While it runs, ``_take_steps`` notices the change itself.
        if one.handle is None and not one.is_running:
            self._soon(one)
        if self._busy is not None and one.batch is self._batch and len(one.batch.requests) == 1:
            # The wait was for this caller alone.
            self._busy.cancel()
            self._busy = self._loop.call_soon(self._free)

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        one = self._open.get(request)
        if one is not None and not one.is_cancelled:
            one.is_paused = True

    def resume(self, request: InferRequest) -> None:
        one = self._open.get(request)
        if one is None or not one.is_paused:
            return
        one.is_paused = False
        if one.handle is None and not one.is_running:
            self._soon(one)

    def _free(self) -> None:
        batch, self._batch = self._batch, None
        self._busy = None
        if batch is not None:
            batch.infer_ns = batch.end_ns = monotonic_ns()
            self._events.step_finished(self, batch)
        if self._on_idle.callback is not None:
            self._on_idle.notify(self.is_idle)

    # Steps

    def _soon(self, one: _OpenRequest) -> None:
        one.cut = False
        one.handle = self._loop.call_soon(self._advance, one)

    def _advance(self, one: _OpenRequest) -> None:
        """Take the next steps of a request, as many as it may."""
        one.handle = None
        one.is_running = True
        try:
            if self._take_steps(one):
                self._soon(one)
        finally:
            one.is_running = False

    def _take_steps(self, one: _OpenRequest) -> bool:
        """Whether further steps are to be taken soon."""
        for _ in range(MAX_STEPS):
            if one.is_paused:
                return False
            try:
                step = next(one.steps)
            except StopIteration:
                self._end(one, None)
                return False
            except NaiadError as error:
                self._end(one, error)
                return False
            # Whatever a model raises, SystemExit included, ends its request and nothing else.
            except BaseException as error:
                failed = run_failed(self._spec.name, error)
                self._end(one, failed)
                return False
            if type(step) is Delay:
                if step.writes:
                    one.begun_ns = monotonic_ns()
                if step.seconds > 0:
                    one.cut = step.can_be_cut
                    one.handle = self._loop.call_later(step.seconds, self._advance, one)
                    return False
            elif not self._responds_once:
                self._respond(one, step)
            elif step is not None:
                # Further responses would reach nobody.
                self._open.pop(one.request, None)
                self._respond(one, step, FLAG_FINAL)
                if self._on_idle.callback is not None:
                    self._on_idle.notify(self.is_idle)
                return False
        return True

    def _respond(self, one: _OpenRequest, step: Arrays | NaiadError | Delay | None, final: int = 0) -> None:
        begun_ns, one.begun_ns = one.begun_ns, 0
        if step is None:
            response = Response(0, None, None, FLAG_EMPTY)
        elif isinstance(step, NaiadError):
            response = Response(0, None, step, FLAG_ERROR | FLAG_OWN | final, begun_ns)
        elif isinstance(step, Delay):
            raise InternalError("a wait is no response")
        else:
            response = Response(0, step, None, final, begun_ns or monotonic_ns())
        self._events.worker_responded(one.request, response, one.batch)

    def _end(self, one: _OpenRequest, error: NaiadError | None) -> None:
        self._open.pop(one.request, None)
        # A request with one response has to get it, even when its caller has gone.
        if error is None and one.is_cancelled and self._responds_once:
            error = CancelledError(f"{request_label(one.request.id)}the request was cancelled by its caller")
        flags = FLAG_FINAL | FLAG_EMPTY if error is None else FLAG_FINAL | FLAG_ERROR
        self._events.worker_responded(one.request, Response(0, None, error, flags), one.batch)
        if self._on_idle.callback is not None:
            self._on_idle.notify(self.is_idle)


def run_steps(instance: DecoupledInstance, batch: Batch) -> list[str]:
    """Take all steps of the requests of a warm-up without their waits; the texts of their errors."""
    failed = []
    for request in batch.requests:
        one = _OpenRequest(request, batch)
        try:
            for number, step in enumerate(instance.steps(request.inputs, request.options.outputs, one)):
                if isinstance(step, NaiadError):
                    failed.append(str(step))
                if number >= MAX_WARM_STEPS:
                    break
        except Exception as error:
            failed.append(str(error))
    return failed


class _Failing(Iterator[Step]):
    """The steps of a request that could not be begun."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __next__(self) -> Step:
        raise self._error

"""An instance on the event loop whose requests are answered any number of times, step by step.

A step is asked for when the caller takes the response. A request whose caller does not is passed over until it does,
and costs nothing meanwhile; all others go on.
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
from naiad.errors import BackendError, CancelledError, InternalError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.runner import failed_to_start
from naiad.request import InferRequest, request_label
from naiad.worker.ipc.frames import FLAG_EMPTY, FLAG_ERROR, FLAG_FINAL, FLAG_OWN

logger = logging.getLogger("naiad")

MAX_STEPS: Final = 64
"""So many steps of one request, then it is the turn of everything else."""
MAX_WARM_STEPS: Final = 10_000
"""Of a request of a warm-up."""


class StepAnswers(Protocol):
    """Takes what comes of the steps."""

    def worker_responded(self, request: InferRequest, response: Response, batch: Batch) -> None:
        """One response, final or not, to a request of the batch."""

    def step_finished(self, instance: SteppedDecoupledInstance, batch: Batch) -> None:
        """The instance can take the next batch; requests of this one may be open."""


class _OpenRequest:
    """A request on its way. It is what the instance sees of who asked."""

    __slots__ = ("batch", "begun_ns", "cut", "handle", "is_cancelled", "is_held", "is_running", "request", "steps")

    def __init__(self, request: InferRequest, batch: Batch) -> None:
        self.request = request
        self.batch = batch
        self.steps: Iterator[Step] = iter(())
        self.handle: asyncio.Handle | None = None
        # Whether its wait ends when the caller gives up.
        self.cut = False
        self.is_cancelled = False
        self.is_held = False
        self.is_running = False
        # When the outputs of the next response were begun, 0 when they are not.
        self.begun_ns = 0


class SteppedDecoupledInstance:
    """Runs a decoupled instance. Everything but ``start``, ``stop`` and ``join`` happens on the event loop.

    Args:
        name: of the instance.
        spec: of the model.
        create: makes the instance.
        warm: called with the new instance, before it serves.
        answers: takes the responses.
        loop: the event loop.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        create: Callable[[], DecoupledInstance],
        warm: Callable[[DecoupledInstance], None],
        answers: StepAnswers,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self._spec = spec
        # The first response is the answer.
        self._answers_once = not spec.decoupled
        self._create = create
        self._warm = warm
        self._answers = answers
        self._loop = loop
        self._instance: DecoupledInstance | None = None
        self._courses: dict[InferRequest, _OpenRequest] = {}
        self._batch: Batch | None = None
        self._busy: asyncio.Handle | None = None

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
        """True: there is nothing to wait for."""
        return True

    def detach(self) -> None:
        """Forget what has not ended; the last call on the loop."""
        if self._busy is not None:
            self._busy.cancel()
        for course in self._courses.values():
            if course.handle is not None:
                course.handle.cancel()
        self._courses.clear()

    @property
    def is_unused(self) -> bool:
        """No request is open."""
        return not self._courses and self._batch is None

    # Requests

    def begin(self, batch: Batch) -> None:
        """Begin with the requests of a batch.

        ``StepAnswers.step_finished`` is called when the next batch may begin, never before this returns.
        """
        instance = self._instance
        batch.start_ns = batch.input_ns = monotonic_ns()
        self._batch = batch
        courses = [_OpenRequest(request, batch) for request in batch.requests]
        busy_s = 0.0
        for course in courses:
            request = course.request
            self._courses[request] = course
            try:
                if instance is None:
                    raise InternalError(f"instance '{self.name}' is not started")
                course.steps = instance.steps(request.inputs, request.options.outputs, course)
                busy_s = max(busy_s, instance.busy_s(request.inputs))
            except Exception as error:
                course.steps = _Failing(error)
        if busy_s:
            self._busy = self._loop.call_later(busy_s, self._free)
        else:
            self._busy = self._loop.call_soon(self._free)
        for course in courses:
            self._go_on(course)

    def cancel(self, request: InferRequest) -> None:
        """The caller of a request gave up: its steps are asked for to their end, and sent to nobody."""
        course = self._courses.get(request)
        if course is None:
            return
        course.is_cancelled = True
        course.is_held = False
        if course.cut and course.handle is not None:
            course.handle.cancel()
            course.handle = None
        if course.handle is None and not course.is_running:
            self._soon(course)
        if self._busy is not None and course.batch is self._batch and len(course.batch.requests) == 1:
            # Nobody is there who could have asked for the wait.
            self._busy.cancel()
            self._busy = self._loop.call_soon(self._free)

    def hold(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """The caller of a request does not take its responses for now."""
        course = self._courses.get(request)
        if course is not None and not course.is_cancelled:
            course.is_held = True

    def go_on(self, request: InferRequest) -> None:
        """The caller of a request takes its responses again."""
        course = self._courses.get(request)
        if course is None or not course.is_held:
            return
        course.is_held = False
        if course.handle is None and not course.is_running:
            self._soon(course)

    def _free(self) -> None:
        batch, self._batch = self._batch, None
        self._busy = None
        if batch is not None:
            batch.infer_ns = batch.end_ns = monotonic_ns()
            self._answers.step_finished(self, batch)

    # Steps

    def _soon(self, course: _OpenRequest) -> None:
        course.cut = False
        course.handle = self._loop.call_soon(self._go_on, course)

    def _go_on(self, course: _OpenRequest) -> None:
        """Take the next steps of a request, as many as it may."""
        course.handle = None
        course.is_running = True
        try:
            if self._take_steps(course):
                self._soon(course)
        finally:
            course.is_running = False

    def _take_steps(self, course: _OpenRequest) -> bool:
        """Whether there are further ones to be taken soon."""
        for _ in range(MAX_STEPS):
            if course.is_held:
                return False
            try:
                step = next(course.steps)
            except StopIteration:
                self._end(course, None)
                return False
            except NaiadError as error:
                self._end(course, error)
                return False
            except BaseException as error:
                failed = BackendError(f"model '{self._spec.name}' failed: {type(error).__name__}: {error}")
                self._end(course, failed)
                return False
            if type(step) is Delay:
                if step.writes:
                    course.begun_ns = monotonic_ns()
                if step.seconds > 0:
                    course.cut = step.can_be_cut
                    course.handle = self._loop.call_later(step.seconds, self._go_on, course)
                    return False
            elif not self._answers_once:
                self._respond(course, step)
            elif step is not None:
                # What would follow reaches nobody.
                self._courses.pop(course.request, None)
                self._respond(course, step, FLAG_FINAL)
                return False
        return True

    def _respond(self, course: _OpenRequest, step: Arrays | NaiadError | Delay | None, final: int = 0) -> None:
        begun_ns, course.begun_ns = course.begun_ns, 0
        if step is None:
            response = Response(0, None, None, FLAG_EMPTY)
        elif isinstance(step, NaiadError):
            response = Response(0, None, step, FLAG_ERROR | FLAG_OWN | final, begun_ns)
        elif isinstance(step, Delay):
            raise InternalError("a wait is no response")
        else:
            response = Response(0, step, None, final, begun_ns or monotonic_ns())
        self._answers.worker_responded(course.request, response, course.batch)

    def _end(self, course: _OpenRequest, error: NaiadError | None) -> None:
        self._courses.pop(course.request, None)
        if error is None and course.is_cancelled and self._answers_once:
            error = CancelledError(f"{request_label(course.request.id)}the request was cancelled by its caller")
        flags = FLAG_FINAL | FLAG_EMPTY if error is None else FLAG_FINAL | FLAG_ERROR
        self._answers.worker_responded(course.request, Response(0, None, error, flags), course.batch)


def run_steps(instance: DecoupledInstance, batch: Batch) -> list[str]:
    """Take all steps of the requests of a warm-up without their waits; the texts of what failed."""
    failed = []
    for request in batch.requests:
        course = _OpenRequest(request, batch)
        try:
            for number, step in enumerate(instance.steps(request.inputs, request.options.outputs, course)):
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

"""Back-pressure within an ensemble: decoupled steps that pause, and the in-flight limit of each step.

A decoupled step pauses while the caller does not take the responses, or while later steps do not keep up.
"""

from __future__ import annotations

from typing import Final

from naiad.execution.ensemble.step_request import MemberRequest
from naiad.scheduling.flow_control import BACKPRESSURE_TIMEOUT_MS

PAUSE_FRAMES: Final = 256
"""Responses that wait in a request before its first decoupled step pauses."""


class StepFlowControl:
    """The decoupled steps of one request of an ensemble. Used on the event loop only.

    A step is paused after its first response: its model does not know a request that still waits in the queue.
    """

    __slots__ = ("_backpressure_timeout_ms", "_paused", "_responding")

    def __init__(self) -> None:
        # None while the caller takes what comes.
        self._backpressure_timeout_ms: int | None = None
        self._responding: set[MemberRequest] = set()
        self._paused: set[MemberRequest] = set()

    def pause(self, backpressure_timeout_ms: int) -> None:
        """Pause all steps, for the caller does not take the responses; see ``Recipient.pause``."""
        self._backpressure_timeout_ms = backpressure_timeout_ms
        for step in self._responding - self._paused:
            self._pause(step, backpressure_timeout_ms)

    def resume(self) -> None:
        """Resume all steps: the caller takes the responses again."""
        self._backpressure_timeout_ms = None
        self._release()

    def responded(self, step: MemberRequest, frames: int) -> None:
        """Note a response of a step that will send more; ``frames`` responses of the request wait."""
        self._responding.add(step)
        if step in self._paused:
            return
        if self._backpressure_timeout_ms is not None:
            self._pause(step, self._backpressure_timeout_ms)
        elif frames > PAUSE_FRAMES and not step.task.frame.scope:
            # Only the outermost step: the steps that read its responses have to end for fewer to wait.
            self._pause(step, BACKPRESSURE_TIMEOUT_MS)

    def ended(self, step: MemberRequest) -> None:
        """Note the last response of a step."""
        self._responding.discard(step)
        self._paused.discard(step)

    def sent(self, frames: int) -> None:
        """Note that responses were sent to the caller; ``frames`` still wait."""
        if self._paused and self._backpressure_timeout_ms is None and frames <= PAUSE_FRAMES // 2:
            # Half of the limit, so that a step does not pause again after its next response.
            self._release()

    def _pause(self, step: MemberRequest, backpressure_timeout_ms: int) -> None:
        self._paused.add(step)
        step.target.pause(step, backpressure_timeout_ms)

    def _release(self) -> None:
        # Taken out first: a step that resumes may respond at once, and be paused again.
        paused, self._paused = self._paused, set()
        for step in paused:
            step.target.resume(step)


class InFlightLimit:
    """Bounds the requests of each step that run at a time (``max_inflight_requests``), over all of an ensemble.

    Args:
        most: the bound of each step, 0 for none. Requests beyond it wait in the order of their arrival.
    """

    __slots__ = ("_is_starting", "_most", "_running", "_waiting")

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: dict[int, int] = {}
        self._waiting: dict[int, dict[MemberRequest, None]] = {}
        self._is_starting = False

    @property
    def is_limited(self) -> bool:
        """Whether requests may have to wait."""
        return bool(self._most)

    def start(self, request: MemberRequest) -> None:
        """Run a step now, or once fewer requests of it run."""
        if not self._most:
            request.run.submit(request)
            return
        index = request.task.step.index
        if self._running.setdefault(index, 0) >= self._most or self._waiting.get(index):
            # A waiting request comes first, also when the loop of ``has_ended`` has not started it yet.
            self._waiting.setdefault(index, {})[request] = None
            return
        self._running[index] += 1
        request.run.submit(request)

    def give_up(self, request: MemberRequest) -> None:
        """Cancel the request of a step."""
        waiting = self._waiting.get(request.task.step.index) if self._most else None
        if waiting is not None and request in waiting:
            del waiting[request]
        else:
            request.target.cancel(request)

    def has_ended(self, request: MemberRequest) -> None:
        """Count a request of a step that has ended, and start the next one."""
        if not self._most:
            return
        index = request.task.step.index
        self._running[index] -= 1
        if self._is_starting:
            # The loop below starts the next one, however many end inside of it.
            return
        self._is_starting = True
        try:
            # A request may end, and others may begin to wait, inside of ``submit``: no iterator survives that.
            while (first := self._next()) is not None:
                first.run.submit(first)
        finally:
            self._is_starting = False

    def _next(self) -> MemberRequest | None:
        for index, waiting in self._waiting.items():
            if waiting and self._running[index] < self._most:
                first = next(iter(waiting))
                del waiting[first]
                self._running[index] += 1
                return first
        return None

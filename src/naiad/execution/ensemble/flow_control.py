"""Which decoupled steps of a request pause: its caller does not take the responses, or later steps do not keep up."""

from __future__ import annotations

from typing import Final

from naiad.execution.ensemble.step_request import MemberRequest
from naiad.scheduling.flow_control import BACKPRESSURE_TIMEOUT_MS

HOLD_FRAMES: Final = 256
"""When more responses of its steps wait in a request, the step that the request began with is to pause."""


class StepFlowControl:
    """The decoupled steps of one request of an ensemble. Used on the event loop only.

    A step is asked to pause when it responds: one that waits in the queue of its model is not known there yet.
    """

    __slots__ = ("_backpressure_timeout_ms", "_held", "_responding")

    def __init__(self) -> None:
        # None while the caller takes what comes.
        self._backpressure_timeout_ms: int | None = None
        self._responding: set[MemberRequest] = set()
        self._held: set[MemberRequest] = set()

    def hold(self, backpressure_timeout_ms: int) -> None:
        """The caller takes nothing for now; see ``Recipient.hold``."""
        self._backpressure_timeout_ms = backpressure_timeout_ms
        for step in self._responding - self._held:
            self._pause(step, backpressure_timeout_ms)

    def go_on(self) -> None:
        """The caller takes the responses again."""
        self._backpressure_timeout_ms = None
        self._release()

    def responded(self, step: MemberRequest, frames: int) -> None:
        """A step has given a response and will give more; ``frames`` of the request wait."""
        self._responding.add(step)
        if step in self._held:
            return
        if self._backpressure_timeout_ms is not None:
            self._pause(step, self._backpressure_timeout_ms)
        elif frames > HOLD_FRAMES and not step.task.frame.scope:
            # Those further in have to end for what waits to become less.
            self._pause(step, BACKPRESSURE_TIMEOUT_MS)

    def ended(self, step: MemberRequest) -> None:
        """A step gives no more."""
        self._responding.discard(step)
        self._held.discard(step)

    def sent(self, frames: int) -> None:
        """Responses have left for the caller; ``frames`` wait still."""
        if self._held and self._backpressure_timeout_ms is None and frames <= HOLD_FRAMES // 2:
            self._release()

    def _pause(self, step: MemberRequest, backpressure_timeout_ms: int) -> None:
        self._held.add(step)
        step.target.hold(step, backpressure_timeout_ms)

    def _release(self) -> None:
        held, self._held = self._held, set()
        for step in held:
            step.target.go_on(step)

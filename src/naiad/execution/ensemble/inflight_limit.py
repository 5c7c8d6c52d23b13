"""How many requests of each step of an ensemble run at a time (``max_inflight_requests``), over all its requests."""

from __future__ import annotations

from naiad.execution.ensemble.step_request import MemberRequest


class InFlightLimit:
    """Lets ``most`` requests of each step run at a time, 0 for any number; the others wait in the order they came."""

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
        """Have a step run when its turn comes, which may be now."""
        if not self._most:
            request.run.submit(request)
            return
        index = request.task.step.index
        if self._running.setdefault(index, 0) >= self._most or self._waiting.get(index):
            # Also while a place is free that one of those is about to get.
            self._waiting.setdefault(index, {})[request] = None
            return
        self._running[index] += 1
        request.run.submit(request)

    def give_up(self, request: MemberRequest) -> None:
        """Nobody needs a step any more."""
        waiting = self._waiting.get(request.task.step.index) if self._most else None
        if waiting is not None and request in waiting:
            del waiting[request]
        else:
            request.target.cancel(request)

    def has_ended(self, request: MemberRequest) -> None:
        """A step that ran is over: the next one has its turn."""
        if not self._most:
            return
        index = request.task.step.index
        self._running[index] -= 1
        if self._is_starting:
            # The loop below sees to it, however many end at once.
            return
        self._is_starting = True
        try:
            # What is started may end, or let others wait, before this comes back: nothing is iterated over meanwhile.
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

"""Queues groups of requests for a model version that puts the rows of requests together."""

from __future__ import annotations

from typing import Final

from naiad.execution.batching.gather import SMALL_BYTES
from naiad.execution.batching.request_group import RequestGroup
from naiad.execution.model.responder import ModelResponder
from naiad.execution.model.scheduler import Scheduler
from naiad.request import InferRequest

_MOST_ROWS: Final = 16
LEAST_ROWS: Final = 3
"""Two requests cost less one by one."""


def group_rows(max_rows: int) -> int:
    """The most requests of a group where batches have at most ``max_rows`` rows.

    A batch ends between two groups, so large groups would leave room in it.
    """
    return min(_MOST_ROWS, max_rows // 2)


class GroupQueue:
    """Admits and queues groups. Belongs to the event loop.

    Attributes:
        rows: the most requests that a group may have.
    """

    __slots__ = ("_responder", "_scheduler", "rows")

    def __init__(self, responder: ModelResponder, scheduler: Scheduler, rows: int) -> None:
        self._responder = responder
        self._scheduler = scheduler
        self.rows = rows

    def rows_of(self, row_bytes: int) -> int:
        """The most requests of a group, where a row has that many bytes: joining them must not hold the loop up."""
        return min(self.rows, SMALL_BYTES // row_bytes)

    def submit(self, group: RequestGroup) -> bool:
        """Queue a group of checked requests; False, and nothing is changed, where they have to be submitted one by one.

        Each of them may be refused then, and gets an error of its own.
        """
        dispatcher = self._scheduler.dispatcher
        if dispatcher.outage is not None or not self._responder.admit_group(group):
            return False
        self._scheduler.push(group)
        self._responder.statistics.pending += group.count
        if dispatcher.idle and not dispatcher.turn_is_set:
            self._scheduler.wake(group)
        return True

    def cancel(self, group: RequestGroup, request: InferRequest) -> None:
        """Cancel a request of a group that no batch has taken: it leaves the group at once."""
        if group.count == 1:
            self._scheduler.cancel(group)
            return
        group.leave(request)
        self._responder.statistics.pending -= 1
        self._responder.fail_cancelled(request)

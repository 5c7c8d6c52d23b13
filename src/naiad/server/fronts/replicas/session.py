"""The replicas of one front-end process, as the engine's process sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from naiad.server.fronts.messages import REPLICA_COUNTS, REPLICA_ENDED, REPLICA_SERVES, REPLICAS, REPORT, WATCH
from naiad.telemetry.metrics.moved_counts import add_counts
from naiad.telemetry.metrics.recent_latencies import RecentLatencies

if TYPE_CHECKING:
    from naiad.execution.model.loaded_model import LoadedModel
    from naiad.server.fronts.link import Handlers, Link
    from naiad.server.fronts.replicas.table import ReplicaChange, ReplicaTable


class ReplicaSession:
    """Keeps each model of the engine loaded until its replica in the front end has ended, and counts what that ran.

    Args:
        table: the models that have replicas.
        ran: called with the number of requests that replicas have run.
        in_flight: for each front end, the requests that its replicas have in flight, and their bytes.
        reported: called when the front end has sent its counts for a call of ``request_counts``, with the mark of that.
    """

    def __init__(
        self,
        table: ReplicaTable,
        ran: Callable[[int], object],
        in_flight: dict[int, tuple[int, int]],
        reported: Callable[[ReplicaSession, int], object],
    ) -> None:
        self._table = table
        self._ran = ran
        self._in_flight = in_flight
        self._reported = reported
        self._models: dict[int, LoadedModel] = {}
        self._serving: set[int] = set()
        self._watched: set[int] = set()
        self._pending: dict[int, int] = {}

    def connect(self, link: Link) -> None:
        """Announce over ``link``."""
        self._link = link

    def handlers(self) -> Handlers:
        """What takes the front end's messages about replicas."""
        return {REPLICA_COUNTS: self._count, REPLICA_SERVES: self._serves, REPLICA_ENDED: self._ended}

    @property
    def has_any(self) -> bool:
        """Whether the front end may have counted something."""
        return bool(self._models)

    def announce(self, change: ReplicaChange) -> None:
        """Have the front end load the new replicas, and end those that are gone."""
        if not (change.gone or change.fresh):
            return
        for number in change.fresh:
            model = self._models[number] = self._table.model(number)
            model.replica_began()
        self._link.post((REPLICAS, change.gone, change.described))

    def request_counts(self, mark: int) -> None:
        """Have the front end send what it has counted."""
        self._link.post((REPORT, mark))

    def close(self) -> None:
        """The front end is gone."""
        self._in_flight.pop(id(self), None)
        for number in list(self._models):
            self._ended(number)

    def _count(self, rows: list[tuple[int, Any, int]], mark: int, requests: int, size: int) -> None:
        self._in_flight[id(self)] = requests, size
        for number, counts, pending in rows:
            model = self._models.get(number)
            if model is None:
                continue
            model.statistics.pending += pending - self._pending.get(number, 0)
            self._pending[number] = pending
            if counts is not None:
                self._ran(add_counts(model.statistics, counts))
            self._watch(number, isinstance(model.statistics.latencies, RecentLatencies))
        if mark:
            self._reported(self, mark)

    def _watch(self, number: int, is_wanted: bool) -> None:
        """Have the front end keep the latencies of a replica while somebody watches the model."""
        if is_wanted != (number in self._watched):
            (self._watched.add if is_wanted else self._watched.discard)(number)
            self._link.post((WATCH, number, is_wanted))

    def _serves(self, number: int) -> None:
        model = self._models.get(number)
        if model is not None:
            model.replicas += 1
            self._serving.add(number)

    def _ended(self, number: int) -> None:
        model = self._models.pop(number, None)
        if model is not None:
            if number in self._serving:
                self._serving.remove(number)
                model.replicas -= 1
            self._watched.discard(number)
            model.statistics.pending -= self._pending.pop(number, 0)
            model.replica_ended()

"""Who makes the load of each level: this process, or several that are started for it."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from naiad.perf.load.host import cores
from naiad.perf.load.load import MeasuredLoad
from naiad.perf.load.loads import LoadFactory
from naiad.perf.results import LevelResult, LoadLevel, LoadMode
from naiad.perf.settings import PerfSettings
from naiad.perf.target.loop import EpollLoop
from naiad.perf.workers.messages import Prepare
from naiad.perf.workers.shared_load import SharedLoad
from naiad.perf.workers.worker import Worker

_UNDIVIDED: Final = (LoadMode.PERIODIC_CONCURRENCY, LoadMode.SESSION_CONCURRENCY)
"""Requests of these loads wait for one another, so one process makes them."""


class Crew:
    """The processes of a run; they are ended with the ``with`` block, whatever happens in it.

    Args:
        factory: makes the load of a level in this process.
        job: what other processes need to make it.
    """

    def __init__(self, settings: PerfSettings, factory: LoadFactory, job: Prepare) -> None:
        self._plan = settings.load
        self._total = settings.measure.total_requests
        self._factory = factory
        self._job = job
        self._is_apart = settings.target.service_kind != "in_process"
        self._wanted = settings.load.client_workers or 1
        self._may_grow = settings.load.client_workers == 0
        self._workers: list[Worker] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.hang_up()
        for worker in workers:
            worker.end()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes that were started."""
        return [worker.pid for worker in self._workers]

    def open(self, loop: EpollLoop, level: LoadLevel) -> MeasuredLoad:
        """The load of a level, with its connections open.

        Raises:
            TargetError: the server does not take the connections, or a process cannot be started.
        """
        count = self._count(level)
        if count == 1:
            return self._factory.open(loop, self._factory.recorder(self._job.exported), level)
        self._start(count)
        return SharedLoad(loop, self._workers[:count], level)

    def _count(self, level: LoadLevel) -> int:
        """How many processes have something to do at a level."""
        # A model that runs here is in no other process.
        if level.mode in _UNDIVIDED or not self._is_apart:
            return 1
        most = self._wanted
        if level.mode is LoadMode.CONCURRENCY:
            most = min(most, int(level.value))
        elif self._factory.is_sequence:
            most = min(most, self._plan.num_of_sequences)
        if self._total:
            most = min(most, self._total)
        first_id, end_id = self._plan.sequence_id_range
        if self._factory.is_sequence and end_id:
            most = min(most, end_id - first_id)
        return max(most, 1)

    def _start(self, count: int) -> None:
        fresh = []
        for number in range(len(self._workers), count):
            worker = Worker(f"the process {number + 1} of {count} of the load generator")
            # At once, so that it is ended whatever happens next.
            self._workers.append(worker)
            fresh.append(worker)
            worker.order(self._job)
        for worker in fresh:
            worker.response()

    def grows(self, result: LevelResult) -> bool:
        """Whether there are more processes from now on, since the generator was the bottleneck of a level.

        Only where the number was left open, and as long as the machine has more cores.
        """
        if not self._may_grow or not result.merged.client.is_bottleneck:
            return False
        before = self._count(result.level)
        self._wanted = min(2 * before, cores())
        return self._count(result.level) > before

"""The models that this front-end process runs itself."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from naiad.lifecycle.state.load_threads import in_thread
from naiad.server.fronts.messages import REPLICA_COUNTS, REPLICA_ENDED, REPLICA_SERVES, REPLICAS, REPORT, WATCH
from naiad.server.fronts.replicas.generation import GenerationPage
from naiad.telemetry.metrics.moved_counts import Counts, take_counts
from naiad.telemetry.metrics.recent_latencies import RecentLatencies

if TYPE_CHECKING:
    from naiad.config.source import ModelSource
    from naiad.execution.model.interface import ServingModel
    from naiad.execution.model.loaded_model import LoadedModel
    from naiad.lifecycle.loading.load_version import LoadSettings
    from naiad.scheduling.admission import RequestBudget
    from naiad.server.fronts.link import Handlers, Link

logger = logging.getLogger("naiad")

CLOSING_S: Final = 1.0
"""How long an instance may take to end when the process ends."""
Key = tuple[str, str]
"""The name and the version that callers ask for, "" for none."""


@dataclass(slots=True, eq=False)
class _Replica:
    number: int
    link: Link
    model: LoadedModel | None = None
    is_wanted: bool = True


class Replicas:
    """Loads replicas in threads, and ends them when the engine says so. Used on the event loop only.

    Args:
        budget: bounds the requests of replicas.
        settings: gives how models are loaded in this process, with that budget; called for each replica.
        forget: called with each replica that serves no more.

    Attributes:
        budget: of all replicas together.
        serving: the replicas by what callers ask for; ``latest`` has those for callers that name no version.
        known, now: the generation of the table that this process knows, and the engine's. The replicas may serve while
            they are equal.
    """

    def __init__(
        self, budget: RequestBudget, settings: Callable[[], LoadSettings], forget: Callable[[ServingModel], object]
    ) -> None:
        self.serving: dict[Key, LoadedModel] = {}
        self.latest: dict[str, LoadedModel] = {}
        self.known = -1
        self.now: Sequence[int] = (0,)
        self._generation = GenerationPage()
        self.budget = budget
        self._settings = settings
        self._in_flight = (0, 0)
        self._forget = forget
        self._numbers: dict[Key, int] = {}
        self._replicas: dict[int, _Replica] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._link: Link | None = None

    def connect(self, link: Link) -> None:
        """Follow the engine at the other end of ``link``."""
        self._link = link
        link.on_descriptor = self._attach

    def disconnect(self) -> None:
        """The engine's process is gone, and nobody says any more what may serve."""
        self._link = None
        self._detach()
        self._numbers = {}
        self._end(list(self._replicas))

    def _attach(self, descriptor: int) -> None:
        self._detach()
        self.now = self._generation.open(descriptor)

    def _detach(self) -> None:
        self.known, self.now = -1, (0,)
        self._generation.close()

    def handlers(self) -> Handlers:
        """What takes the engine's messages about replicas."""
        return {REPLICAS: self._take, REPORT: self.report, WATCH: self._watch}

    def name(self, numbers: dict[Key, int], generation: int) -> None:
        """Take which replica serves which name and version, as of a generation of the engine's table."""
        self.known = generation
        self._numbers = numbers
        self._choose()

    def report(self, mark: int = 0) -> None:
        """Send what the replicas have counted; ``mark`` is that of the engine's call for it."""
        if self._link is not None:
            rows = self._counted(list(self._replicas.values()))
            if rows or mark or self._in_flight != (self.budget.requests, self.budget.bytes):
                self._post(self._link, rows, mark)

    def _post(self, link: Link, rows: list[tuple[int, Counts | None, int]], mark: int) -> None:
        self._in_flight = self.budget.requests, self.budget.bytes
        link.post((REPLICA_COUNTS, rows, mark, *self._in_flight))

    async def close(self) -> None:
        """End all replicas, which have no request in flight any more."""
        self._end(list(self._replicas))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2 * CLOSING_S)

    def _counted(self, replicas: list[_Replica]) -> list[tuple[int, Counts | None, int]]:
        rows = []
        for replica in replicas:
            if replica.model is not None:
                statistics = replica.model.statistics
                counts = take_counts(statistics)
                if counts is not None or statistics.pending:
                    rows.append((replica.number, counts, statistics.pending))
        return rows

    def _take(self, gone: list[int], fresh: bytes) -> None:
        self._end(gone)
        for number, source, version, config in pickle.loads(fresh) if fresh else ():
            if self._link is not None:
                replica = self._replicas[number] = _Replica(number, self._link)
                self._start(self._load(replica, source, version, config))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _choose(self) -> None:
        """Serve by the replicas that are loaded."""
        replicas = self._replicas
        self.serving = {
            key: found.model
            for key, number in self._numbers.items()
            if (found := replicas.get(number)) is not None and found.model is not None and found.is_wanted
        }
        self.latest = {name: model for (name, version), model in self.serving.items() if not version}

    async def _load(self, replica: _Replica, source: ModelSource, version: int, config: bytes) -> None:
        # Imported here: a front end without replicas does not pay for it.
        from naiad.config.messages import message_class
        from naiad.config.problems import Origin
        from naiad.config.read import ReadConfig
        from naiad.lifecycle.loading.load_version import load_version

        read = ReadConfig(message_class("ModelConfig").FromString(config), Origin())
        loop = asyncio.get_running_loop()
        try:
            model, _ = await in_thread(load_version, source, version, read, self._settings(), loop)
        except Exception as error:
            logger.warning(
                "model '%s' version %d is run by the engine's process alone, since a front-end process could not load "
                "it: %s", source.name, version, error,
            )  # fmt: skip
            self._ended(replica)
            return
        replica.model = model
        if replica.is_wanted:
            logger.info("a front-end process runs '%s' version %d itself", source.name, version)
            self._choose()
            replica.link.post((REPLICA_SERVES, replica.number))
        else:
            await self._close(replica, model)

    def _watch(self, number: int, is_on: bool) -> None:
        replica = self._replicas.get(number)
        if replica is not None and replica.model is not None:
            replica.model.keep_latencies(RecentLatencies() if is_on else None)
            replica.model.trace_with(None)

    def _end(self, numbers: list[int]) -> None:
        ending = [self._replicas[number] for number in numbers if number in self._replicas]
        for replica in ending:
            if replica.is_wanted:
                replica.is_wanted = False
                if replica.model is not None:
                    replica.model.stop_accepting()
                    self._start(self._close(replica, replica.model))
        self._numbers = {key: number for key, number in self._numbers.items() if number not in numbers}
        self._choose()
        for replica in ending:
            if replica.model is not None:
                self._forget(replica.model)

    async def _close(self, replica: _Replica, model: LoadedModel) -> None:
        """Close a replica after its last response."""
        while not model.is_drained:
            drained = asyncio.Event()
            model.when_drained(drained.set)
            await drained.wait()
        rows = self._counted([replica])
        if rows:
            self._post(replica.link, rows, 0)
        await in_thread(model.close, None if replica.link.is_open else CLOSING_S)
        model.detach()
        self._ended(replica)

    def _ended(self, replica: _Replica) -> None:
        if self._replicas.get(replica.number) is replica:
            del self._replicas[replica.number]
        replica.link.post((REPLICA_ENDED, replica.number))

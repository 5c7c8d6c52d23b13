"""The memory of models: a budget for all of them, and evictions when it is used up or when a model is idle.

A load first gets room: an estimate of its memory is reserved for it, and models are evicted where that is necessary.
After the load the memory is measured and counts in place of the estimate. An evicted model refuses new requests and
responds to those that it accepted; its memory counts until it is closed. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from naiad.clock import Clock, SystemClock
from naiad.config.freeze import parameters
from naiad.config.memory import BYTES, PINNED, is_true, stated_bytes
from naiad.errors import ModelLoadError, NaiadError, UnavailableError
from naiad.lifecycle.memory.measure import files_bytes, process_bytes, shared_out
from naiad.lifecycle.memory.waiting_line import WaitingLine
from naiad.lifecycle.state.load_threads import in_thread
from naiad.lifecycle.state.wait_graph import OperationsOn, RequestsInFlight, Residence
from naiad.scheduling.eviction import Resident, idle, to_make_room

if TYPE_CHECKING:
    from naiad.execution.model.interface import LoadedVersion
    from naiad.lifecycle.state.candidate import Candidate
    from naiad.lifecycle.state.model_table import ModelEntry
    from naiad.lifecycle.state.operations import Operation, Operations

logger = logging.getLogger("naiad")

TICK_S: Final = 10.0
"""The longest interval at which memory is measured again and idle models are evicted."""
WAIT_S: Final = 60.0
"""How long a load waits for memory that others release."""
MAX_NAMED: Final = 8
"""How many models an error names."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The server's options about memory.

    Attributes:
        budget_bytes: for all models together; 0 for no limit.
        idle_s: seconds without requests after which a model is evicted; 0 for never.
        demand_s: seconds for which a request waits for a model that is loaded for it; 0 where requests load none.
    """

    budget_bytes: int = 0
    idle_s: int = 0
    demand_s: int = 0


class TooLargeError(ModelLoadError):
    """A model needs more memory than the budget, or than pinned and busy models leave of it."""


class ModelMemory:
    """Reserves memory for loads, and evicts models.

    Args:
        entries: all models.
        settings: the limits.
        operations: the loads and unloads under way; their graph says which models must stay, and what waits for what.
        members_within: all models that an ensemble is made of, which are used whenever it is; none for other models.
        retire: unloads a model, for a reason.
        retiring: the versions that are draining.

    Attributes:
        evictions: how many models were evicted, by reason.
        asking: the names of the models whose loads wait for room themselves.
    """

    def __init__(
        self,
        entries: Mapping[str, ModelEntry],
        settings: MemorySettings,
        operations: Operations,
        members_within: Callable[[str], Iterable[str]],
        retire: Callable[[ModelEntry, str], None],
        retiring: Collection[LoadedVersion],
        clock: Clock | None = None,
    ) -> None:
        self.evictions: Counter[str] = Counter()
        self.budget_bytes = settings.budget_bytes
        self._entries = entries
        self._idle_ms = settings.idle_s * 1000
        self._operations = operations
        self._graph = operations.graph
        self._members_within = members_within
        self._retire = retire
        self._retiring = retiring
        self._is_starting = False
        self._started_ms = 0
        self._clock = clock or SystemClock()
        # The memory that the model of each load will hold in the end.
        self._targets: dict[str, tuple[ModelEntry, int]] = {}
        self._line = WaitingLine(self._graph)
        self.asking: set[str] = set()
        self._is_closed = False
        self._keeping: asyncio.Task[None] | None = None

    @property
    def evicts(self) -> bool:
        """Whether there is a limit for which models are evicted."""
        return bool(self.budget_bytes or self._idle_ms)

    # Figures

    def loaded_bytes(self) -> int:
        """The memory of the models that serve."""
        return sum(entry_bytes(entry) for entry in self._entries.values())

    def used_bytes(self) -> int:
        """The memory of the models that serve or drain, and the memory reserved for loads."""
        return self.loaded_bytes() + self._leaving_bytes() + self._reserved_bytes()

    def _reserved_bytes(self) -> int:
        """The memory that loads will still take. A version that serves already counts as loaded, and not here."""
        return sum(max(0, target - entry_bytes(entry)) for entry, target in self._targets.values())

    def _leaving_bytes(self, load: Operation | None = None) -> int:
        """The bytes of models that drain; without those whose last requests wait for ``load``."""
        return sum(
            held_bytes(models)
            for name, models in self._leaving().items()
            if load is None or not self._graph.reaches(RequestsInFlight(name), load)
        )

    def _leaving(self) -> dict[str, list[LoadedVersion]]:
        found: dict[str, list[LoadedVersion]] = {}
        for model in self._retiring:
            key = f"{model.namespace}/{model.name}" if model.namespace else model.name
            found.setdefault(key, []).append(model)
        return found

    def _residents(self) -> list[Resident]:
        needed = self._needed()
        found = {
            name: _resident(entry, self._has_to_stay(name, needed))
            for name, entry in self._entries.items()
            if entry.serving
        }
        # A step may run seldom, or its responses may be cached: an ensemble goes with its member.
        for name, ensemble in list(found.items()):
            for member in self._members_within(name):
                if member in found and found[member].last_used_ms < ensemble.last_used_ms:
                    found[member] = found[member]._replace(last_used_ms=ensemble.last_used_ms)
        return list(found.values())

    # Loads

    @asynccontextmanager
    async def room(
        self, entry: ModelEntry, found: Candidate, operation: Operation, evicts: bool = True
    ) -> AsyncIterator[None]:
        """Reserve memory for a load of a model while it lasts; others are evicted for it unless ``evicts`` is False.

        ``operation`` is the load, which stops waiting once it is given up. The copy of the model that serves counts
        towards the load: during a reload both are in memory.

        Raises:
            UnavailableError: there is no room now.
            ModelLoadError: the load was given up meanwhile.
            TooLargeError: there will never be room, or the model took more than there is and was unloaded again.
        """
        if not self.budget_bytes:
            yield
            # For the metrics, and since a model may be idle from its load on.
            await self._share(entry)
            self._note_load(entry)
            return
        estimate = await self._estimate(entry, found)
        if estimate > self.budget_bytes:
            raise TooLargeError(
                f"model '{entry.name}' takes {estimate} bytes of memory ({self._source(entry, found)}), and "
                f"--model-memory-budget is {self.budget_bytes}"
            )
        async with self._holding(entry, estimate, operation, evicts):
            yield
        await self._share(entry)
        self._note_load(entry)
        self._settle(entry)

    def check_spare(self, entry: ModelEntry, growth: float) -> None:
        """Check that a model that serves can be loaded again with ``growth`` times as many instances beside itself.

        Raises:
            TooLargeError: others would have to be evicted for it.
        """
        extra = round(entry_bytes(entry) * max(1.0, growth))
        if self.budget_bytes and self.used_bytes() + extra > self.budget_bytes:
            raise TooLargeError(
                f"model '{entry.name}' takes another {extra} bytes of memory while it changes, and "
                f"--model-memory-budget has {max(0, self.budget_bytes - self.used_bytes())} left"
            )

    @asynccontextmanager
    async def room_in_place(self, entry: ModelEntry, growth: float, operation: Operation) -> AsyncIterator[None]:
        """Reserve memory while a model that serves gets ``growth`` times as many instances; then measure it again.

        Only instances in processes of their own take more. Errors as ``room``, except that the model stays: when it
        takes more than its estimate, others are evicted.
        """
        extra = round(sum(m.statistics.memory_bytes for m in entry.loaded() if m.process_ids) * max(0.0, growth - 1))
        size = entry_bytes(entry) + extra
        if self.budget_bytes and size > self.budget_bytes:
            raise TooLargeError(
                f"model '{entry.name}' takes {size} bytes of memory with its new instances, and --model-memory-budget "
                f"is {self.budget_bytes}"
            )
        async with self._holding(entry, size, operation) if self.budget_bytes else nullcontext():
            yield
        await self._measure([entry])
        if self.budget_bytes:
            self._keep_to_budget([resident for resident in self._residents() if resident.name != entry.name])

    @asynccontextmanager
    async def _holding(
        self, entry: ModelEntry, size: int, operation: Operation, evicts: bool = True
    ) -> AsyncIterator[None]:
        """Reserve memory for a model of ``size`` bytes, its copy that serves included; errors as ``room``."""
        self.asking.add(entry.name)
        # Its present copy may go from now on.
        self._graph.notify()
        try:
            async with self._line.turn(operation, lambda: self._operations.is_awaited(entry.name)):
                self._targets[entry.name] = entry, await self._make_room(entry, size, operation, evicts)
        finally:
            self.asking.discard(entry.name)
        try:
            yield
        finally:
            del self._targets[entry.name]
            self._graph.notify()

    async def _estimate(self, entry: ModelEntry, found: Candidate) -> int:
        stated = stated_bytes(parameters(found.read.config))
        if stated is not None:
            return stated
        source = found.source
        single = source.single_file
        paths = [single] if single is not None else [source.folder(version) for version in found.versions]
        sizes = await in_thread(lambda: sum(files_bytes(path) for path in paths if path is not None))
        return max(sizes, entry.measured_bytes)

    @staticmethod
    def _source(entry: ModelEntry, found: Candidate) -> str:
        if BYTES in parameters(found.read.config):
            return f"by its parameter '{BYTES}'"
        return "measured when it was loaded last" if entry.measured_bytes else "the size of its files"

    async def _make_room(self, entry: ModelEntry, estimate: int, operation: Operation, evicts: bool) -> int:
        """Wait until there is room; the bytes that the model will hold then, its present copy included."""
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while True:
            operation.check_wanted()
            # Its present copy may go meanwhile.
            need = max(0, estimate - entry_bytes(entry))
            free = self.budget_bytes - self.used_bytes()
            if need <= free:
                return entry_bytes(entry) + need
            others = [resident for resident in self._residents() if resident.name != entry.name]
            # Models that drain make room too, except those whose last requests wait for this load.
            victims = to_make_room(others, need - free - self._leaving_bytes(operation)) if evicts else None
            if victims:
                for victim in victims:
                    self._evict(victim.name, "memory", f"to make room for '{entry.name}'")
                # Again from the start: an evicted member takes its ensembles with it.
                continue
            # No victims but not None: models that drain will make enough room.
            waits = evicts and (victims is not None or self._may_change(entry, operation))
            left_s = deadline - asyncio.get_running_loop().time()
            if self._is_closed or not waits or left_s <= 0:
                raise self._no_room(entry, need, free, operation if evicts else None)
            await self._graph.change(left_s)

    def _may_change(self, entry: ModelEntry, operation: Operation) -> bool:
        """Whether memory may come free: from a load, or from a model that stays for something else than this load."""
        # A load that became awaited in this turn of the loop may not have noticed that it passes.
        self._line.let_pass()
        return any(not self._waits_for(name, operation) for name in (*self._targets, *self._held_beside(entry)))

    def _held_beside(self, entry: ModelEntry) -> list[str]:
        """Other models that must not go now, but may later."""
        needed = self._needed()
        return [
            name
            for name, other in self._entries.items()
            if other.serving and other is not entry and self._has_to_stay(name, needed) and not is_pinned(other)
        ]

    def _waits_for(self, name: str, operation: Operation) -> bool:
        """Whether a model stays, or its load lasts, until ``operation`` is over: a wait for it would close a cycle."""
        return any(self._graph.reaches(node, operation) for node in (Residence(name), OperationsOn(name)))

    def _needed(self) -> set[str]:
        """The models that must stay for requests or for loads, with the members of ensembles among them."""
        found = self._graph.residences()
        return found.union(*map(self._members_within, found))

    def _has_to_stay(self, name: str, needed: Collection[str]) -> bool:
        """Whether a model must not go now. It may while its own load waits for room."""
        return name in needed or (self._operations.concern(name) and name not in self.asking)

    def _no_room(self, entry: ModelEntry, need: int, free: int, operation: Operation | None) -> NaiadError:
        pinned = sum(entry_bytes(other) for other in self._entries.values() if is_pinned(other))
        waiting: list[str] = []
        if operation is not None:
            waiting += [f"'{name}'" for name in self._held_beside(entry) if self._waits_for(name, operation)]
            waiting += [
                f"'{name}'" for name in self._leaving() if self._graph.reaches(RequestsInFlight(name), operation)
            ]
        circle = f". What would have to go waits for this load, or for one behind it: {', '.join(waiting[:MAX_NAMED])}"
        return UnavailableError(
            f"there is no room for model '{entry.name}': it takes {need} bytes, {max(0, free)} of the "
            f"{self.budget_bytes} of --model-memory-budget are free; loaded models hold {self.loaded_bytes()} "
            f"({pinned} of them pinned), loads under way {self._reserved_bytes()}{circle if waiting else ''}. Unload "
            "models, or raise the budget"
        )

    def _note_load(self, entry: ModelEntry) -> None:
        entry.loaded_ms = self._clock.wall_ms()
        entry.measured_bytes = measured_bytes(entry.loaded())

    def _settle(self, entry: ModelEntry) -> None:
        """Keep to the budget after a load, which may have taken more than its estimate.

        Raises:
            TooLargeError: it took more than others can make room for; it was unloaded.
        """
        # Models that drain do not count: their memory is about to be free.
        over = self.loaded_bytes() + self._reserved_bytes() - self.budget_bytes
        if over <= 0:
            return
        victims = to_make_room([r for r in self._residents() if r.name != entry.name], over)
        if victims is not None:
            for victim in victims:
                self._evict(victim.name, "memory", f"'{entry.name}' took more than was known")
            return
        size = entry_bytes(entry)
        self._evict(entry.name, "memory", "it took more than there is")
        raise TooLargeError(
            f"model '{entry.name}' took {size} bytes of memory once it was loaded, {over} more than "
            f"--model-memory-budget ({self.budget_bytes}) leaves it: it was unloaded again"
        )

    # Evictions

    def _evict(self, name: str, reason: str, why: str) -> None:
        entry = self._entries[name]
        logger.info("unloading '%s', which holds %d bytes: %s", name, entry_bytes(entry), why)
        self.evictions[reason] += 1
        self._retire(entry, why)

    def start(self) -> None:
        """Start to measure memory and to evict idle models at intervals, where there is a limit."""
        if self._keeping is None and self.evicts:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    def close(self) -> None:
        """Stop evicting; loads that wait for memory fail."""
        self._is_closed = True
        self._graph.notify()
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None

    async def _keep(self) -> None:
        # An idle model is evicted at most a quarter of its time late.
        tick_s = min(TICK_S, self._idle_ms / 4000) if self._idle_ms else TICK_S
        while True:
            await asyncio.sleep(tick_s)
            try:
                if self.budget_bytes:
                    await self._measure(self._entries.values())
                    self._keep_to_budget(self._residents())
                if self._idle_ms:
                    self.evict_idle()
            except Exception:
                # The task must not end: nothing would evict any more.
                logger.exception("the memory of models could not be looked at")

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Count no model as idle while the server starts: others may be about to need it."""
        self._is_starting = True
        try:
            yield
        finally:
            self._is_starting = False
            self._started_ms = self._clock.wall_ms()

    def evict_idle(self) -> None:
        """Evict the models without requests for ``idle_s``."""
        now_ms = self._clock.wall_ms()
        # A model is idle at the earliest since the end of the start.
        if self._is_starting or now_ms - self._started_ms < self._idle_ms:
            return
        for resident in idle(self._residents(), now_ms, self._idle_ms):
            self._evict(resident.name, "idle", f"no request for {self._idle_ms // 1000} s")

    async def _share(self, entry: ModelEntry) -> None:
        """Measure models that share a process with a new one: each counts for its part of the process from now on."""
        mine = {pid for model in entry.loaded() for pid in model.process_ids}
        if not mine:
            # A look at thousands of other models would block the loop.
            return
        others = [
            other
            for other in self._entries.values()
            if other is not entry and any(mine.intersection(model.process_ids) for model in other.loaded())
        ]
        if others or sum(len(model.process_ids) for model in entry.loaded()) > len(mine):
            await self._measure([entry, *others])

    async def _measure(self, entries: Iterable[ModelEntry]) -> None:
        found = list(entries)
        # Of all models: a process is divided among all that use it.
        pids = {model: model.process_ids for entry in self._entries.values() for model in entry.loaded()}
        measured = {model for entry in found for model in entry.loaded()}
        memory = await in_thread(process_bytes, {pid for model in measured for pid in pids[model]})
        for model, size in shared_out(pids, memory).items():
            # The size is 0 while a worker restarts: the last figure stays.
            if size and model in measured:
                model.statistics.memory_bytes = size
        for entry in found:
            if entry.serving:
                entry.measured_bytes = measured_bytes(entry.loaded())
        self._graph.notify()

    def _keep_to_budget(self, residents: Iterable[Resident]) -> None:
        """Evict some of ``residents`` where models have grown beyond the budget."""
        over = self.loaded_bytes() + self._reserved_bytes() - self.budget_bytes
        if over <= 0:
            return
        for victim in to_make_room(residents, over) or ():
            self._evict(victim.name, "memory", "models hold more than --model-memory-budget")


def entry_bytes(entry: ModelEntry) -> int:
    """The memory of the versions of a model that serve."""
    return held_bytes(entry.loaded())


def measured_bytes(models: Iterable[LoadedVersion]) -> int:
    """The measured memory of some versions of a model."""
    return sum(model.statistics.memory_bytes for model in models)


def held_bytes(models: Iterable[LoadedVersion]) -> int:
    """The memory of some versions of a model: measured, and at least what the model states in its configuration."""
    found = list(models)
    return max([measured_bytes(found), *(stated_bytes(model.spec.parameters) or 0 for model in found)])


def is_pinned(entry: ModelEntry) -> bool:
    """Whether its configuration pins a model (``memory.pinned``)."""
    return entry.serving is not None and is_true(entry.serving.spec.parameters.get(PINNED, ""))


def _resident(entry: ModelEntry, is_held: bool) -> Resident:
    models = entry.loaded()
    return Resident(
        entry.name,
        entry_bytes(entry),
        max([entry.loaded_ms, *(m.statistics.last_inference_ms for m in models)]),
        any(m.is_busy for m in models),
        is_held or is_pinned(entry),
    )

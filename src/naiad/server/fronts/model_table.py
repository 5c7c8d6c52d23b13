"""The models that front-end processes may read requests for, announced whenever they change."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from naiad.bounded_dict import BoundedDict
from naiad.errors import NaiadError
from naiad.execution.model.interface import LoadedVersion, ServingModel
from naiad.lifecycle.naming import NamespacedEntries
from naiad.repository.local.namespaces import short_name
from naiad.server.fronts.replicas.generation import Generation
from naiad.server.fronts.replicas.table import ReplicaChange, ReplicaTable

if TYPE_CHECKING:
    from naiad.engine.engine import Engine
    from naiad.lifecycle.manager import ModelManager
    from naiad.server.fronts.replicas.rules import ReplicaRules
    from naiad.telemetry.tracing.settings_store import Tracing

logger = logging.getLogger("naiad")

MAX_GONE: Final = 4096
"""The models that are gone whose names are remembered, for requests that were on their way."""


class Announced(NamedTuple):
    """What callers ask for, and the model that answers: it may have been unloaded since."""

    name: str
    version: str
    model: ServingModel
    replica: int


class TableChange(NamedTuple):
    """What front ends have to know: the numbers that are gone, pickled descriptions of the new ones, the replicas that
    are gone and new, and the generation of the table with them."""

    gone: list[int]
    fresh: bytes
    replicas: ReplicaChange
    generation: int


class ModelTable:
    """Numbers the models by the name and version that callers ask for. Used on the event loop only.

    A request is submitted to what ``Engine.find`` says when it arrives, so a table that is a moment late costs time and
    is never wrong. Models that need what only the engine's process has are not in the table: many responses, and
    traces, which begin with the headers of a request.

    Args:
        rules: say which models have replicas.

    Attributes:
        on_change: called with each change.
        replicas: the models that front ends run themselves.
        generation: advances before anything else may happen that depends on a change.
    """

    def __init__(self, engine: Engine, manager: ModelManager, tracing: Tracing, rules: ReplicaRules) -> None:
        self._engine = engine
        self._manager = manager
        self._tracing = tracing
        self._numbers: dict[tuple[str, str], int] = {}
        self._known: dict[int, Announced] = {}
        self._gone: dict[int, Announced] = BoundedDict(MAX_GONE)
        self._next = 1
        self._announced = 0
        self._is_due = False
        self.is_on = True
        self.on_change: list[Callable[[TableChange], object]] = []
        self.replicas = ReplicaTable(rules, manager.entries)
        self.generation = Generation()
        manager.subscribe(engine, self)
        manager.versions.when_changed.append(self.refresh)
        trace_all = tracing.when_changed

        def trace_changed() -> None:
            trace_all()
            self.refresh()

        tracing.when_changed = trace_changed

    def get(self, number: int) -> Announced | None:
        """What was announced under a number, also when it is gone; None when that was long ago."""
        return self._known.get(number) or self._gone.get(number)

    def serve(self, is_on: bool) -> None:
        """Announce models, or none: then every request goes to the engine as it came."""
        self.is_on = is_on
        self.refresh()

    def on_serving(self, model: LoadedVersion) -> None:
        """Called when a version begins to serve."""
        self.refresh()

    def on_unloading(self, model: ServingModel) -> None:
        """Called when a version is being unloaded."""
        self.refresh()

    def refresh(self) -> None:
        """Announce what has changed, once the present step of the loop is complete."""
        self.generation.advance()
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._refresh)

    def all(self) -> TableChange:
        """All models as new, for a front end that has just come."""
        return TableChange([], self._describe(list(self._known)), self.replicas.all(), self._announced)

    def _refresh(self) -> None:
        self._is_due = False
        wanted = {(name, version): model for name, version, model in self._serving()} if self.is_on else {}
        gone, fresh = [], []
        replicas = self.replicas.follow(wanted.values())
        for key, number in list(self._numbers.items()):
            # By identity: a version that was loaded again is another model, under another number.
            known = self._known[number]
            if wanted.get(key) is not known.model or known.replica != self.replicas.number(known.model):
                gone.append(number)
                del self._numbers[key]
                self._gone[number] = self._known.pop(number)
        for key, model in wanted.items():
            if key not in self._numbers:
                number = self._numbers[key] = self._next
                self._next += 1
                self._known[number] = Announced(*key, model, self.replicas.number(model))
                if model.arena is not None:
                    # From now on front ends may take outputs where the workers have put them.
                    model.arena.outputs.is_on = True
                fresh.append(number)
        # Also without a change: front ends wait for the generation.
        self._announced = self.generation.number
        change = TableChange(gone, self._describe(fresh), replicas, self._announced)
        for announce in self.on_change:
            announce(change)

    def _describe(self, numbers: list[int]) -> bytes:
        rows = []
        for number in numbers:
            name, version, model, replica = self._known[number]
            rows.append((number, name, version, model.spec, model.version, replica))
        return pickle.dumps(rows) if rows else b""

    def _serving(self) -> Iterator[tuple[str, str, ServingModel]]:
        entries = self._manager.entries
        for key, entry in entries.items():
            names = {key}
            # Callers may leave the namespace out; ``find`` refuses a name that several models have.
            if isinstance(entries, NamespacedEntries):
                names.add(short_name(key))
            for name in names:
                for version in ("", *(str(v.version) for v in entry.ready())):
                    try:
                        model = self._engine.find(name, version)
                    except NaiadError:
                        continue
                    if not model.spec.decoupled and self._tracing.sampler(model.name) is None:
                        yield name, version, model

"""The engine's table of replicas: the models that front ends run themselves, by number."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from naiad.execution.model.loaded_model import LoadedModel

if TYPE_CHECKING:
    from naiad.config.source import ModelSource
    from naiad.execution.model.interface import ServingModel
    from naiad.lifecycle.state.model_table import ModelEntry
    from naiad.server.fronts.replicas.rules import ReplicaRules


class ReplicaChange(NamedTuple):
    """The numbers that are gone, and those that are new with their pickled descriptions."""

    gone: list[int]
    fresh: list[int]
    described: bytes


class _NumberedModel(NamedTuple):
    model: LoadedModel
    version: int
    source: ModelSource
    config: Any
    share: int


class ReplicaTable:
    """Numbers the versions that have replicas. Used on the event loop only."""

    def __init__(self, rules: ReplicaRules, entries: Mapping[str, ModelEntry]) -> None:
        self._rules = rules
        self._entries = entries
        self._numbers: dict[ServingModel, int] = {}
        self._known: dict[int, _NumberedModel] = {}
        self._next = 1

    def follow(self, announced: Iterable[ServingModel]) -> ReplicaChange:
        """Take the models that front ends know now, of which some have replicas."""
        wanted = self._wanted(set(announced))
        gone = [n for n, known in self._known.items() if wanted.get(known.model) != known]
        for number in gone:
            del self._numbers[self._known.pop(number).model]
        fresh = []
        for model, known in wanted.items():
            if model not in self._numbers:
                number = self._numbers[model] = self._next
                self._known[number] = known
                self._next += 1
                fresh.append(number)
        return ReplicaChange(gone, fresh, self._described(fresh))

    def _wanted(self, announced: Collection[ServingModel]) -> dict[ServingModel, _NumberedModel]:
        found: dict[ServingModel, _NumberedModel] = {}
        for entry in self._entries.values():
            for version in entry.ready():
                model = version.model
                # By class: only these have instances that can be divided.
                if not isinstance(model, LoadedModel) or model not in announced or version.source is None:
                    continue
                is_open = entry.read is not None and not entry.read.config.instance_group
                share = self._rules.share(model, is_open)
                if share:
                    found[model] = _NumberedModel(model, version.version, version.source, version.config, share)
        return found

    def number(self, model: ServingModel) -> int:
        """The number of a model, 0 for one without replicas."""
        return self._numbers.get(model, 0)

    def model(self, number: int) -> LoadedModel:
        """The engine's own copy of a model that has replicas."""
        return self._known[number].model

    def all(self) -> ReplicaChange:
        """All of them as new, for a front end that has just come."""
        numbers = list(self._known)
        return ReplicaChange([], numbers, self._described(numbers))

    def _described(self, numbers: Iterable[int]) -> bytes:
        rows = []
        for number in numbers:
            known = self._known[number]
            config = type(known.config)()
            config.CopyFrom(known.config)
            config.instance_group[0].count = known.share
            rows.append((number, known.source, known.version, config.SerializeToString()))
        return pickle.dumps(rows) if rows else b""

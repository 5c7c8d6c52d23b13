"""Trials: models with changed configurations, and the load on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """The load on one model.

    Attributes:
        batch_size: rows of each request.
        concurrency: requests in flight; 0 where requests come at a rate, or as they were recorded.
        rate: requests a second; 0 where there is none.
    """

    batch_size: int = 1
    concurrency: int = 0
    rate: float = 0.0

    @property
    def text(self) -> str:
        """For people: ``batch size 1, concurrency 16``."""
        if self.rate:
            level = f"{self.rate:g} requests/s"
        else:
            level = f"concurrency {self.concurrency}" if self.concurrency else "recorded traffic"
        return f"batch size {self.batch_size}, {level}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration of one model.

    Attributes:
        model: the name in the repository.
        changes_json: the fields that differ from the repository's configuration, as JSON with sorted keys.
    """

    model: str
    changes_json: str = "{}"

    @staticmethod
    def of(model: str, changes: Mapping[str, Any]) -> Variant:
        """A variant with such fields."""
        return Variant(model, orjson.dumps(changes, option=orjson.OPT_SORT_KEYS).decode())

    @property
    def changes(self) -> dict[str, Any]:
        """The fields."""
        found: dict[str, Any] = orjson.loads(self.changes_json)
        return found

    @property
    def is_default(self) -> bool:
        """Whether it is what the repository says."""
        return self.changes_json == "{}"


@dataclass(frozen=True, slots=True)
class AnalysisTrial:
    """Models under load at the same time, and models that they call.

    Attributes:
        variants: the models under load.
        loads: the load on each of them.
        composing: the models that they call: steps of an ensemble, or those of business logic.
    """

    variants: tuple[Variant, ...]
    loads: tuple[ModelLoad, ...]
    composing: tuple[Variant, ...] = ()

    @property
    def setup(self) -> tuple[Variant, ...]:
        """All configurations, without the load."""
        return self.variants + self.composing

    @property
    def key(self) -> str:
        """The same text for the same trial in every run."""
        parts = [(variant.model, variant.changes_json) for variant in self.setup]
        loads = [(load.batch_size, load.concurrency, load.rate) for load in self.loads]
        return orjson.dumps([parts, loads]).decode()

    @property
    def is_default(self) -> bool:
        """Whether every model has the configuration of the repository."""
        return all(variant.is_default for variant in self.setup)


def load_of(trial: AnalysisTrial) -> float:
    """The greatest concurrency or rate of a trial."""
    return max((load.rate or load.concurrency for load in trial.loads), default=0)


def changed_config(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with changes: parameters are added, other fields are replaced, None removes a field."""
    made = dict(config)
    for name, value in changes.items():
        if value is None:
            made.pop(name, None)
        elif name == "parameters":
            made[name] = {**made.get(name, {}), **value}
        else:
            made[name] = value
    return made

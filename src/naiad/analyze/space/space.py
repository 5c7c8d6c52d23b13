"""A grid of configurations and loads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from naiad.analyze.space.knobs import Knob, KnobValues, Subject, fitting_concurrency
from naiad.analyze.trial import AnalysisTrial, ModelLoad, Variant, changed_config

Point = tuple[int, ...]
"""A place in a space: for each dimension which of its values."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One thing that varies.

    Attributes:
        owner: which of the subjects has it.
        is_ordered: whether neighbouring values are alike.
    """

    owner: int
    knob: Knob
    values: tuple[Any, ...]
    is_ordered: bool = True


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Which concurrency is taken where none is listed.

    Attributes:
        batch_size: rows of a request where that does not vary.
        is_recorded: whether requests come as they were recorded.
    """

    least: int = 1
    most: int = 1024
    batch_size: int = 1
    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class Space:
    """All combinations of the dimensions' values.

    Attributes:
        limits: of each subject.
    """

    subjects: tuple[Subject, ...]
    dimensions: tuple[Dimension, ...]
    limits: tuple[LoadLimits, ...]

    @property
    def size(self) -> int:
        """How many points it has."""
        return math.prod(len(dimension.values) for dimension in self.dimensions)

    def points(self) -> Iterator[Point]:
        """All points that can be measured, the last dimension fastest."""
        return filter(self.is_possible, map(self.point, range(self.size)))

    def is_possible(self, point: Point) -> bool:
        """Whether the models take requests of the point's batch sizes."""
        trial = self.trial(point)
        loaded = [subject for subject in self.subjects if not subject.is_composing]
        for subject, variant, load in zip(loaded, trial.variants, trial.loads, strict=True):
            config = changed_config(subject.configs[variant.model], variant.changes)
            if load.batch_size > max(int(config.get("max_batch_size", 0)), 1):
                return False
        return True

    def point(self, number: int) -> Point:
        """The point with a number, counted from 0."""
        found = []
        for dimension in reversed(self.dimensions):
            number, place = divmod(number, len(dimension.values))
            found.append(place)
        return tuple(reversed(found))

    def trial(self, point: Point) -> AnalysisTrial:
        """The trial of a point."""
        chosen: list[dict[Knob, Any]] = [{} for _ in self.subjects]
        for dimension, place in zip(self.dimensions, point, strict=True):
            chosen[dimension.owner][dimension.knob] = dimension.values[place]
        return self._trial(chosen)

    def default_trial(self) -> AnalysisTrial:
        """The configurations of the repository under the load that fits them."""
        chosen: list[dict[Knob, Any]] = [{} for _ in self.subjects]
        for dimension in self.dimensions:
            if dimension.knob in (Knob.BATCH_SIZE, Knob.CONCURRENCY, Knob.RATE, Knob.FILL):
                # The least batch and the greatest load: what the default is compared at.
                is_size = dimension.knob is Knob.BATCH_SIZE
                chosen[dimension.owner][dimension.knob] = dimension.values[0 if is_size else -1]
        return self._trial(chosen)

    def _trial(self, chosen: Sequence[Mapping[Knob, Any]]) -> AnalysisTrial:
        variants, loads, composing = [], [], []
        for subject, limits, values in zip(self.subjects, self.limits, chosen, strict=True):
            model, changes = KnobValues(dict(values)).changes(subject)
            if subject.is_composing:
                composing.append(Variant.of(model, changes))
                continue
            if not subject.has_instances:
                changes = {**changes, **self._bounded(subject, chosen)}
            variants.append(Variant.of(model, changes))
            config = changed_config(subject.configs[model], changes)
            if not subject.has_instances:
                config = self._busiest(chosen)
            loads.append(_load(config, limits, values))
        return AnalysisTrial(tuple(variants), tuple(loads), tuple(composing))

    def _bounded(self, ensemble: Subject, chosen: Sequence[Mapping[Knob, Any]]) -> dict[str, Any]:
        """The batch size of an ensemble where its own is beyond that of a step, with which it would not load."""
        # A composing model without batches is that of another ensemble, which has none either.
        sizes = [size for config in self._composing(chosen) if (size := int(config.get("max_batch_size", 0)))]
        own = int(ensemble.config.get("max_batch_size", 0))
        return {"max_batch_size": min(sizes)} if sizes and own > min(sizes) else {}

    def _busiest(self, chosen: Sequence[Mapping[Knob, Any]]) -> dict[str, Any]:
        """Of the composing models the configuration that takes the most requests at a time: it sets the load."""
        return max([{}, *self._composing(chosen)], key=lambda config: fitting_concurrency(config, 1))

    def _composing(self, chosen: Sequence[Mapping[Knob, Any]]) -> list[dict[str, Any]]:
        """The configurations of the composing models."""
        found: list[dict[str, Any]] = []
        for subject, values in zip(self.subjects, chosen, strict=True):
            if subject.is_composing:
                model, changes = KnobValues(dict(values)).changes(subject)
                found.append(changed_config(subject.configs[model], changes))
        return found


def _load(config: Mapping[str, Any], limits: LoadLimits, values: Mapping[Knob, Any]) -> ModelLoad:
    batch_size = values.get(Knob.BATCH_SIZE, limits.batch_size)
    if limits.is_recorded:
        return ModelLoad(batch_size)
    if Knob.RATE in values:
        return ModelLoad(batch_size, rate=float(values[Knob.RATE]))
    if Knob.CONCURRENCY in values:
        return ModelLoad(batch_size, values[Knob.CONCURRENCY])
    fitting = round(fitting_concurrency(config, batch_size) * values.get(Knob.FILL, 1.0))
    return ModelLoad(batch_size, min(max(fitting, limits.least, 1), limits.most))

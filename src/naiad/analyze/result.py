"""What an analysis found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from naiad.analyze.checkpoint import Checkpoint
from naiad.analyze.measurement import Measurement, merged
from naiad.analyze.rank.certainty import Noise
from naiad.analyze.rank.score import Judge
from naiad.analyze.space.knobs import Subject
from naiad.analyze.trial import AnalysisTrial, Variant


@dataclass(slots=True)
class ModelProfile:
    """Models that were measured together: one, unless several were asked for at the same time.

    Attributes:
        space_size: how many points the search could choose from.
        default: the configurations of the repository; None while they are not measured.
        repeats: the measurements of each trial, in their order.
        searched: the trials that the search measured, without other loads on the best of them.
        reused: how many measurements came from earlier runs.
    """

    subjects: tuple[Subject, ...]
    judge: Judge
    space_size: int = 0
    default: Measurement | None = None
    repeats: dict[AnalysisTrial, list[Measurement]] = field(default_factory=dict)
    searched: set[AnalysisTrial] = field(default_factory=set)
    measured: int = 0
    reused: int = 0
    took_s: float = 0.0

    @property
    def name(self) -> str:
        """The models, for people."""
        return ", ".join(subject.name for subject in self.subjects if not subject.is_composing)

    @property
    def rows(self) -> list[Measurement]:
        """One measurement for each trial."""
        return [merged(found) for found in self.repeats.values()]

    @property
    def noise(self) -> Noise:
        """How much repeated measurements differ."""
        return Noise.of(self.repeats.values())

    def ranked(self) -> list[Measurement]:
        """The best trial of each configuration, the best configuration first.

        What was measured once by the way, with short windows, may look good by luck. First comes what is the best with
        the standard deviation of its measurements taken off.
        """
        rows = self.judge.ranked(self.rows)
        within = [row for row in rows if self.judge.is_within(row)]
        order = [*([max(within, key=self._lower_bound(within))] if within else []), *rows]
        seen: set[tuple[Variant, ...]] = set()
        found = []
        for row in order:
            if row.trial.setup not in seen and not row.error:
                seen.add(row.trial.setup)
                found.append(row)
        return found

    def _lower_bound(self, rows: Sequence[Measurement]) -> Callable[[Measurement], float]:
        """The gain of a row less its standard deviation, which is smaller the longer it was measured in all."""
        lengths = {row.trial: sum(one.window_ms for one in self.repeats[row.trial] if not one.error) for row in rows}
        shortest = max(min(lengths.values()), 1)
        deviation = self.noise.between

        def bound(row: Measurement) -> float:
            return (self.judge.gain(row) or 0.0) - deviation * math.sqrt(shortest / max(lengths[row.trial], 1))

        return bound

    def loads_of(self, setup: tuple[Variant, ...]) -> list[Measurement]:
        """All loads on one configuration, the least first."""
        rows = [row for row in self.rows if row.trial.setup == setup and not row.error]
        return sorted(rows, key=lambda row: max(load.concurrency or load.rate for load in row.trial.loads))


@dataclass(slots=True)
class SetOfModels:
    """Models that were measured beside each other.

    Attributes:
        measured: all of them busy; an error where they do not fit.
    """

    names: tuple[str, ...]
    measured: Measurement
    alone_p99_ms: tuple[float, ...] = ()


@dataclass(slots=True)
class Analysis:
    """A whole run.

    Attributes:
        checkpoint: knows the names of the configurations.
        endpoint: what was measured.
    """

    checkpoint: Checkpoint
    profiles: list[ModelProfile] = field(default_factory=list)
    sets: list[SetOfModels] = field(default_factory=list)
    machine: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    endpoint: str = ""
    mode: str = "online"
    is_interrupted: bool = False
    failures: list[str] = field(default_factory=list)
    idle: Mapping[str, Any] = field(default_factory=dict)

    def names(self, trial: AnalysisTrial) -> list[str]:
        """The names of a trial's configurations, those of the models under load first."""
        return self.checkpoint.names_of(trial)

    def name(self, trial: AnalysisTrial) -> str:
        """The names of a trial's configurations as one: ``bls_config_2 (add_config_1)``."""
        names = self.names(trial)
        loaded, composing = names[: len(trial.variants)], names[len(trial.variants) :]
        return ", ".join(loaded) + (f" ({', '.join(composing)})" if composing else "")

    def folder(self, trial: AnalysisTrial) -> str:
        """The name of the folder for a page about a trial's configurations."""
        return "+".join(self.names(trial)[: len(trial.variants)])

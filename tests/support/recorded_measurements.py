"""Measurements that ``scripts/record_configurations.py`` recorded, as the source that a search measures with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from naiad.analyze.errors import TrialError
from naiad.analyze.measurement import Measurement, ModelFigures
from naiad.analyze.space.knobs import Knob, Subject
from naiad.analyze.space.space import Dimension, LoadLimits, Space
from naiad.analyze.trial import AnalysisTrial

FOLDER = Path(__file__).parents[1] / "analyze" / "recorded"
NAMES = tuple(sorted(file.stem for file in FOLDER.glob("*.json")))


class RecordedSource:
    """A model whose configurations were all measured, in several rounds.

    Args:
        first: the round that the first measurement of a configuration comes from.

    Attributes:
        count: how many measurements were asked for.
        keys: what each trial is called in the file.
    """

    def __init__(self, name: str, first: int = 0) -> None:
        plain = json.loads((FOLDER / f"{name}.json").read_text())
        self.name: str = plain["model"]
        self._config: dict[str, Any] = plain["config"]
        dimensions = tuple(Dimension(0, Knob(knob), tuple(values)) for knob, values in plain["dimensions"])
        self.space = Space((Subject(self.name, {self.name: self._config}),), dimensions, (LoadLimits(),))
        self.keys = {self.space.trial(point).key: " ".join(map(str, point)) for point in self.space.points()}
        self.keys.setdefault(self.space.default_trial().key, "default")
        self._rows: dict[str, list[Any]] = plain["rows"]
        self._first = first
        self._measured: Counter[str] = Counter()
        self.count = 0

    def config(self, model: str) -> Mapping[str, Any]:
        """The configuration that was recorded."""
        return self._config

    def measure(self, trial: AnalysisTrial, scale: int) -> Measurement:
        """The next round of a configuration."""
        key = self.keys[trial.key]
        number = (self._first + self._measured[key]) % len(self._rows[key])
        self._measured[key] += 1
        self.count += 1
        return self.round(trial, key, number)

    def round(self, trial: AnalysisTrial, key: str, number: int) -> Measurement:
        """What was measured in one round."""
        row = self._rows[key][number]
        if isinstance(row, dict):
            raise TrialError(row["error"])
        rates, p99_ms, memory_mb = row
        figures = {"perf_throughput": mean(rates), "perf_latency_p99": p99_ms}
        machine = {"cpu_used_ram": memory_mb}
        return Measurement(trial, [ModelFigures(self.name, figures, list(rates), [p99_ms])], machine, window_ms=150)

    def truth(self, trial: AnalysisTrial) -> float:
        """The throughput of a configuration over all rounds."""
        rows = self._rows[self.keys[trial.key]]
        return mean(mean(row[0]) for row in rows if not isinstance(row, dict))

    def best(self) -> float:
        """The most throughput of any configuration."""
        return max(self.truth(self.space.trial(point)) for point in self.space.points())

    def close(self) -> None:
        """Nothing was opened."""

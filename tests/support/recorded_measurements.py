"""Measurements that ``scripts/record_configurations.py`` recorded, as the source that a search measures with."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from naiad.analyze.errors import TrialError
from naiad.analyze.measure.source import MeasurementSource
from naiad.analyze.measure.window_lengths import LEAST_REQUESTS, WindowLengths
from naiad.analyze.measurement import Measurement, ModelFigures
from naiad.analyze.space.knobs import Knob, Subject
from naiad.analyze.space.space import Dimension, LoadLimits, Space
from naiad.analyze.trial import AnalysisTrial, load_of

FOLDER = Path(__file__).parents[1] / "analyze" / "recorded"
NAMES = tuple(sorted(file.stem for file in FOLDER.glob("*.json")))


class RecordedSource:
    """A model whose configurations were all measured, in several rounds.

    Args:
        first: the round that the first measurement of a configuration comes from.
        noise: measurements are the mean of all rounds, with noise of this standard deviation in the shortest windows,
            and less in longer ones; 0 for the rounds as they were recorded.

    Attributes:
        count: how many measurements were asked for.
        keys: what each trial is called in the file.
    """

    def __init__(self, name: str, first: int = 0, noise: float = 0.0) -> None:
        plain = json.loads((FOLDER / f"{name}.json").read_text())
        self.name: str = plain["model"]
        self._config: dict[str, Any] = plain["config"]
        dimensions = tuple(Dimension(0, Knob(knob), tuple(values)) for knob, values in plain["dimensions"])
        self.space = Space((Subject(self.name, {self.name: self._config}),), dimensions, (LoadLimits(),))
        self.keys = {self.space.trial(point).key: " ".join(map(str, point)) for point in self.space.points()}
        self.keys.setdefault(self.space.default_trial().key, "default")
        self._rows: dict[str, list[Any]] = plain["rows"]
        self._first = first
        self._noise, self._random = noise, random.Random(f"{name} {first}")
        self._measured: Counter[str] = Counter()
        self.count = 0

    def config(self, model: str) -> Mapping[str, Any]:
        """The configuration that was recorded."""
        return self._config

    def measure(self, trial: AnalysisTrial, scale: int) -> Measurement:
        """The next round of a configuration."""
        key = self.keys[trial.key]
        if self._noise:
            self.count += 1
            return self._drawn(trial, self._noise / math.sqrt(scale))
        number = (self._first + self._measured[key]) % len(self._rows[key])
        self._measured[key] += 1
        self.count += 1
        return self.round(trial, key, number)

    def _drawn(self, trial: AnalysisTrial, noise: float) -> Measurement:
        rate = self.truth(trial) * math.exp(self._random.gauss(0, noise))
        rates = [rate * math.exp(self._random.gauss(0, noise)) for _ in range(3)]
        figures = {"perf_throughput": rate, "perf_latency_p99": 1.0}
        return Measurement(trial, [ModelFigures(self.name, figures, rates, [1.0])], window_ms=150)

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
        return float(mean(mean(row[0]) for row in rows if not isinstance(row, dict)))

    def best(self) -> float:
        """The most throughput of any configuration."""
        return max(self.truth(self.space.trial(point)) for point in self.space.points())

    def close(self) -> None:
        """Nothing was opened."""


class ReplayedSource(MeasurementSource):
    """Recorded models under other loads as well, with the time that measurements take on a server.

    Args:
        model: which recording all models are measured by.
        change_s: what a change of the configuration takes.
        beside_s: what every measurement takes beside its windows.
        spread: the standard deviation of these times, as a part of them.
        exception_s: what the third change takes, as the first load of a framework does.
        steady: the part of the measurements whose first three windows agree; the others have a fourth one.
    """

    def __init__(
        self,
        model: str,
        change_s: float = 0.3,
        beside_s: float = 0.15,
        spread: float = 0.3,
        exception_s: float = 0.0,
        steady: float = 0.2,
    ) -> None:
        self._recorded = RecordedSource(model)
        self._change_s, self._beside_s, self._spread = change_s, beside_s, spread
        self._random = random.Random(model)
        self._exception_s, self._steady = exception_s, steady
        self._setup: object = None
        self._changes = 0
        self._lengths = WindowLengths()
        space = self._recorded.space
        trials = [space.default_trial(), *map(space.trial, space.points())]
        self._busy = {self._key(trial): trial for trial in trials}

    def _key(self, trial: AnalysisTrial) -> tuple[int, ...]:
        """Instances, batch size and delay; nothing for the default."""
        changes = trial.variants[0].changes
        if not changes:
            return ()
        delay = changes["dynamic_batching"].get("max_queue_delay_microseconds", 0)
        return changes["instance_group"][0]["count"], changes["max_batch_size"], delay

    def config(self, model: str) -> Mapping[str, Any]:
        """The configuration that was recorded."""
        return self._recorded.config(model)

    def idle(self, seconds: float) -> dict[str, Any]:
        """Nothing is known."""
        return {}

    def measure(self, trial: AnalysisTrial, scale: int) -> Measurement:
        """The recorded measurement, with less throughput under a lower load."""
        busy = self._busy[self._key(trial)]
        found = self._recorded.measure(busy, scale)
        part = load_of(trial) / load_of(busy)
        for model in found.models:
            # More callers share batches and instances, so that twice as many bring less than twice as much.
            model.figures["perf_throughput"] *= min(math.sqrt(part), 1.0)
            model.figures["perf_latency_p99"] *= part
        found.trial = trial
        found.took_s = self._beside() if trial.setup == self._setup else self._beside(self._change())
        found.took_s += self._measure_windows(found, scale)
        self._setup = trial.setup
        return found

    def _measure_windows(self, found: Measurement, scale: int) -> float:
        """How long the windows take, with those that hold too few requests; the next ones are longer, for good."""
        found.windows = 3 if self._random.random() < self._steady else 4
        took_s, names, load = 0.0, (found.trial.variants[0].model,), load_of(found.trial)
        while True:
            found.window_ms = round(150 * scale * self._lengths.times(names, load))
            took_s += found.windows * found.window_ms / 1e3
            requests = int(found.throughput * found.window_ms / 1e3)
            if requests >= LEAST_REQUESTS:
                return took_s
            self._lengths.lengthen(names, load, min(1.5 * LEAST_REQUESTS / max(requests, 1), 4.0))

    def _change(self) -> float:
        self._changes += 1
        return self._exception_s if self._exception_s and self._changes == 3 else self._change_s

    def _beside(self, change_s: float = 0.0) -> float:
        return (change_s + self._beside_s) * max(self._random.gauss(1, self._spread), 0.2)

    def close(self) -> None:
        """Nothing was opened."""

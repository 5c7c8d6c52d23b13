"""The search for the best setup under one load: which setup is tried next, and which one is the best so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import numpy as np

from naiad.scheduling.tuning.cost import CostModel
from naiad.scheduling.tuning.regression import Floats, Regression, expected_improvement
from naiad.scheduling.tuning.sample import TuningSample
from naiad.scheduling.tuning.score import excess
from naiad.scheduling.tuning.setup import TunedSetup, setup_coordinates

_MARGIN: Final = 0.92
"""The part of the latency limit that a setup may use: figures of a second are not exact."""
_FAR: Final = 3.0
"""Beyond so many limits it does not matter how far: a queue that grows is longer in every later window."""
_LATENCY_WEIGHT: Final = 0.3
"""What the mean latency counts beside the throughput, which is the same everywhere under a load of a fixed rate."""
_WORTH: Final = 0.015
"""Nothing is tried that is expected to gain less, as a part of the throughput."""
_INSTANCES_COST: Final = 0.6
"""What an expected gain is worth that needs other instances, which take time and memory to start."""
_CLOSE: Final = 0.1
_NOISY: Final = 0.08
"""How close to the best a setup is that is measured again, and from which noise on one more is."""
_TELLING: Final = 0.02
"""A setup that is better by less than this, or by less than the noise, does not replace the one that was held."""
_ENOUGH: Final = 3
"""Windows of a setup before it is believed to be the best."""
_TICKS: Final = 4.0
_TICK_NOISE: Final = 0.08
"""The parts of a window, and the expected spread of the throughput from one of them to the next, as a part of it;
believed as much as so many pairs of parts are."""
_TICK_PAIRS: Final = 4.0
_SHORTEST_NOISE: Final = 0.15
"""The noise that a weight of 1 stands for in the regression."""
_FEW: Final = 3.0
"""Where fewer requests than this are beyond the quantile, the mean latency says as much about it as they do."""


@dataclass(slots=True)
class SetupRecord:
    """What was measured of one setup under one load.

    Attributes:
        total: all of it.
        tails: the latency at the quantile in each window, in seconds.
    """

    total: TuningSample = field(default_factory=TuningSample)
    tails: list[float] = field(default_factory=list)

    @property
    def windows(self) -> int:
        """How many measurements there were."""
        return len(self.tails)

    @property
    def tail_s(self) -> float:
        """The latency at the quantile in the middle one of the windows: one of them may have had a stall."""
        return median(self.tails)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The setup to run next, and why; ``is_final`` when the search has ended with it."""

    setup: TunedSetup
    reason: str
    is_final: bool = False


class SetupSearch:
    """One search. The costs are shared with other searches for the same model, since they do not depend on the load.

    Args:
        setups: what can be chosen from.
        costs: what a batch costs.
        quantile, limit_s: the objective.
        least, most: how many setups are tried, at least and at most.
        blocked: instances and threads that could not be had.
        is_first: nothing was measured before: what no cost foretells is tried once.
        held: what was held until now: it stays where nothing is better by more than measurements can tell.
    """

    def __init__(
        self,
        setups: list[TunedSetup],
        costs: CostModel,
        quantile: float,
        limit_s: float,
        least: int,
        most: int,
        blocked: set[tuple[int, int]],
        is_first: bool = False,
        held: TunedSetup | None = None,
    ) -> None:
        self._setups = [s for s in setups if (s.instances, s.threads) not in blocked]
        self._at, self._owners = setup_coordinates(self._setups)
        self._costs = costs
        self._quantile = quantile
        self._limit_s = limit_s * _MARGIN
        self._least, self._most = least, most
        self._is_first = is_first
        self._held = held
        self.records: dict[TunedSetup, SetupRecord] = {}
        self._rows_per_request = 1.0
        self._squares, self._degrees = _TICK_PAIRS * _TICK_NOISE**2, _TICK_PAIRS

    @property
    def noise(self) -> float:
        """The standard deviation of the throughput of a window, as a part of it: from how its parts differ."""
        return math.sqrt(self._squares / self._degrees / _TICKS)

    def utility(self, sample: TuningSample, tail_s: float) -> float:
        """How good a sample is: a difference of 0.05 is about 5% of the throughput.

        Args:
            tail_s: the latency at the quantile, in seconds.
        """
        beyond = sample.requests * (1 - self._quantile)
        part = beyond / (beyond + _FEW)
        # The last of a hundred requests says little; the distribution has about the same shape in other setups.
        guessed = self._shape() * sample.mean_s
        tail = math.exp(part * math.log(max(tail_s, 1e-9)) + (1 - part) * math.log(max(guessed, 1e-9)))
        return self._score(sample.throughput, sample.mean_s, tail)

    def _shape(self) -> float:
        """How many times the mean latency the one at the quantile is."""
        ratios = [record.tail_s / max(record.total.mean_s, 1e-9) for record in self.records.values()]
        return min(max(median(ratios), 1.2), 4.0) if ratios else 2.0

    def _score(self, throughput: float, mean_s: float, tail: float) -> float:
        gain = math.log(max(throughput, 1e-6)) - _LATENCY_WEIGHT * math.log(max(mean_s, 1e-6))
        return gain - excess(min(tail, _FAR * self._limit_s), self._limit_s)

    def note(self, setup: TunedSetup, sample: TuningSample, parts: Sequence[float] = ()) -> None:
        """Add what was measured of a setup.

        Args:
            parts: the throughputs of equal parts of the sample.
        """
        record = self.records.setdefault(setup, SetupRecord())
        record.total = record.total + sample
        record.tails.append(sample.quantile_s(self._quantile))
        self._rows_per_request = max(1.0, sample.rows / max(sample.requests, 1))
        self._costs.note(setup, sample.batches)
        logs = [math.log(part) for part in parts if part > 0]
        if len(logs) > 1:
            mean = sum(logs) / len(logs)
            self._squares += sum((value - mean) ** 2 for value in logs)
            self._degrees += len(logs) - 1

    def best_guess(self) -> TunedSetup:
        """What the costs alone suggest for the load."""
        return self._setups[int(np.argmax(self._prior()))]

    def best(self) -> TunedSetup:
        """The best setup that was measured; windows are noisy, so that neighbours count as well."""
        measured = [place for place, setup in enumerate(self._setups) if setup in self.records]
        means, _ = self._expected()
        return self._setups[max(measured, key=lambda place: float(means[place]))]

    def propose(self, present: TunedSetup) -> Proposal:
        """What to run after ``present``, of which a sample was just noted."""
        means, deviations = self._expected()
        measured = [place for place, setup in enumerate(self._setups) if setup in self.records]
        if self._is_first and (untried := self._untried()) is not None:
            return untried
        order = sorted(measured, key=lambda place: -float(means[place]))
        top = float(means[order[0]])
        if len(self.records) < self._most and len(measured) < len(self._setups):
            gains = expected_improvement(means, deviations, top)
            # These are measured again below, where they are among the best.
            gains[measured] = 0.0
            moves = np.array([0.0 if setup.same_instances(present) else 1.0 for setup in self._setups])
            gains *= 1.0 - (1.0 - _INSTANCES_COST) * moves
            place = int(np.argmax(gains))
            # A regression over a few points is too sure of itself.
            if len(self.records) < self._least or float(gains[place]) > _WORTH:
                return Proposal(self._setups[place], "tried, as it may be better by the cost of its batches")
        close = max(_CLOSE, 2 * self.noise)
        for place in order[: 2 if self.noise < _NOISY else 3]:
            if self.records[self._setups[place]].windows < _ENOUGH and float(means[place]) > top - close:
                return Proposal(self._setups[place], "measured again: among the best so far")
        best = self._setups[order[0]]
        held = next((place for place in order if self._setups[place] == self._held), None)
        if held is not None and float(means[held]) > top - max(_TELLING, self.noise):
            best = self._setups[held]
        return Proposal(best, self._why(best), is_final=True)

    def _untried(self) -> Proposal | None:
        """The best setup by its costs of those whose effect no cost foretells.

        How soon callers follow up decides about delays, and what the server and its callers need of the cores about
        threads: a single one may serve more than as many as there are cores.
        """
        prior = self._prior()
        order = [self._setups[place] for place in sorted(range(len(self._setups)), key=lambda p: -float(prior[p]))]
        delays = {setup.delay_us for setup in self.records}
        if (found := next((setup for setup in order if setup.delay_us not in delays), None)) is not None:
            return Proposal(found, "tried for its delay, whose effect depends on the callers")
        if any(_is_single(setup) for setup in self.records):
            return None
        found = next(filter(_is_single, order), None)
        return None if found is None else Proposal(found, "tried with one thread, which leaves cores to others")

    def _why(self, setup: TunedSetup) -> str:
        record = self.records[setup]
        kept = record.tail_s * _MARGIN <= self._limit_s
        found = f"{record.total.throughput:.0f} rows/s at {record.tail_s * 1e3:.3g} ms"
        if kept:
            return f"best of {len(self.records)} tried: {found}"
        return f"none of {len(self.records)} tried keeps the limit; the least over it: {found}"

    def _prior(self) -> Floats:
        """What the costs say of each setup."""
        records = list(self.records.values())
        rows = median(record.total.in_flight for record in records) * self._rows_per_request
        ratio = self._shape()
        found = []
        for setup in self._setups:
            expected = self._costs.expected(setup, rows)
            if expected is None:
                found.append(0.0)
                continue
            throughput, mean_s = expected
            found.append(self._score(throughput, mean_s, ratio * mean_s))
        return np.array(found)

    def _expected(self) -> tuple[Floats, Floats]:
        """The utility of each setup and its standard deviation: the costs, corrected by what was measured."""
        prior = self._prior()
        places = [place for place, setup in enumerate(self._setups) if setup in self.records]
        records = [self.records[self._setups[place]] for place in places]
        residuals = np.array([self.utility(record.total, record.tail_s) for record in records]) - prior[places]
        weight = min(max((_SHORTEST_NOISE / self.noise) ** 2, 0.5), 8.0)
        weights = np.array([weight * record.windows for record in records])
        means, deviations = Regression(self._at[places], residuals, weights, self._owners).predict(self._at)
        return prior + means, deviations


def _is_single(setup: TunedSetup) -> bool:
    """Whether it has one thread in all."""
    return setup.instances == setup.threads == 1

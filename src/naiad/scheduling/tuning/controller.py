"""The controller of one model: from what its counters said in each short time to the setup that it is to run in.

It searches under a load until nothing more is to be gained, holds the best setup, and searches again when the load
changes or the latency objective is missed. Time passes with the samples alone.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from naiad.scheduling.tuning.cost import CostModel
from naiad.scheduling.tuning.sample import TuningSample
from naiad.scheduling.tuning.search import SetupRecord, SetupSearch
from naiad.scheduling.tuning.setup import SetupLimits, TunedSetup


class TuningReason(StrEnum):
    """Why a setup runs, in a word for metrics."""

    CONFIGURED = "configured"
    EXPLORE = "explore"
    BEST = "best"
    LOAD_CHANGED = "load_changed"
    ABOVE_LIMIT = "above_limit"
    SLOWER = "slower"
    FALLBACK = "fallback"


WINDOW_S: Final = 1.0
"""The shortest measurement."""
_SETTLE_S: Final = 0.25
"""After a change nothing is measured for so long at least: requests from before it are still on their way."""
_SETTLE_LATENCIES: Final = 2
"""And for so many mean latencies, as far as they are within the limit."""
_WINDOW_REQUESTS: Final = 80
"""A measurement has at least so many requests, unless that takes too long."""
_LONGEST_WINDOW_S: Final = 5.0
_FEWEST: Final = 20
"""With fewer requests in the longest window nothing is decided."""
_FIRST: Final = (14, 22)
_NEXT: Final = (9, 14)
"""How many setups are tried at least and at most: in the first search, and when the costs are known already."""
_STEP: Final = 1.6
"""A load that is so many times as much, or as little, is another load."""
_PAUSING: Final = 0.7
"""Where no request is open and the rate falls to this part, the traffic pauses. A fast model has none open again and
again, as its callers wait together and follow up together."""
_HELD_WINDOWS: Final = 3
"""The windows by which a held setup is judged."""
_SLOWER: Final = 0.15
_PAUSES_S: Final = {TuningReason.ABOVE_LIMIT: 20.0, TuningReason.SLOWER: 60.0}
_MOST_DOUBLINGS: Final = 5
"""How long a setup is held before it is searched again under the same load; doubled when that found none better."""
_LOADS: Final = 16
"""How many loads the best setups are remembered for."""
_NS: Final = 1e9


_WHY: Final = {
    TuningReason.LOAD_CHANGED: "the load changed",
    TuningReason.ABOVE_LIMIT: "more requests than allowed are above the limit",
    TuningReason.SLOWER: "the model got slower",
}


@dataclass(frozen=True, slots=True)
class TuningDecision:
    """A setup to run from now on, and why: in a word, and in a sentence."""

    setup: TunedSetup
    cause: TuningReason
    reason: str


class TuningController:
    """Decides for one model.

    Args:
        limits: the bounds of its setups.
        quantile, limit_ns: the share of the requests that has to be within a time.

    Attributes:
        decision: the last one.
        is_searching: whether setups are being tried.
    """

    def __init__(self, limits: SetupLimits, quantile: float, limit_ns: int) -> None:
        self._limits = limits
        self._quantile = quantile
        self._limit_s = limit_ns / _NS
        self._setups = limits.setups(limit_ns)
        self._costs = CostModel(limits.cores)
        self._blocked: set[tuple[int, int]] = set()
        self._remembered: OrderedDict[int, TunedSetup] = OrderedDict()
        self.decision = TuningDecision(limits.configured, TuningReason.CONFIGURED, "as configured")
        self.is_searching = True
        self._before: TunedSetup | None = None
        self._search = self._new_search(is_first=True)
        self._window = TuningSample()
        self._parts: list[float] = []
        self._settling_s = 0.0
        self._mean_s = 0.0
        self._held: list[TuningSample] = []
        self._held_s = 0.0
        self._doublings = 0
        self._odd = 0

    @property
    def setup(self) -> TunedSetup:
        """What the model is to run in."""
        return self.decision.setup

    def add(self, sample: TuningSample) -> bool:
        """Add what the model did since the last call, in the present setup; whether ``decide`` is to be called."""
        if not sample.open and sample.requests <= _PAUSING * self._window.request_rate * sample.seconds:
            # The traffic pauses: it filled a part of this time, and will fill a part of the time when it begins again.
            self._window, self._parts = TuningSample(), []
            self._settling_s = max(self._settling_s, _SETTLE_S)
            return False
        if self._settling_s > 0:
            self._settling_s -= sample.seconds
            return False
        self._window = self._window + sample
        self._parts.append(sample.throughput)
        return self._is_complete(self._window)

    def decide(self) -> TuningDecision | None:
        """Decide by what was added; None where nothing changes. Takes some milliseconds."""
        window, parts = self._window, self._parts
        self._window, self._parts = TuningSample(), []
        self._mean_s = window.mean_s
        if window.requests < _FEWEST:
            return None
        return self._searched(window, parts) if self.is_searching else self._holding(window)

    def failed(self, setup: TunedSetup, why: str) -> TuningDecision | None:
        """Take that the instances of a setup could not be had: the configured ones serve, and others are not tried."""
        configured = self._limits.configured
        for other in self._setups:
            # What has no room for three instances has none for four.
            is_more = other.instances >= setup.instances > configured.instances
            if not other.same_instances(configured) and (is_more or other.same_instances(setup)):
                self._blocked.add((other.instances, other.threads))
        self._search = self._new_search()
        self.is_searching = True
        reason = f"back to the configuration, as {setup.instances} instance(s) cannot be had: {why}"
        return self._decide(configured, TuningReason.FALLBACK, reason)

    def _is_complete(self, window: TuningSample) -> bool:
        if window.seconds >= _LONGEST_WINDOW_S:
            return True
        is_late = window.requests >= _FEWEST and window.quantile_s(self._quantile) > 4 * self._limit_s
        # A setup that is being tried and is far off is left at once.
        if is_late and self.is_searching and window.seconds >= WINDOW_S / 2:
            return True
        return window.seconds >= WINDOW_S and window.requests >= _WINDOW_REQUESTS

    def _new_search(self, is_first: bool = False) -> SetupSearch:
        least, most = _FIRST if is_first else _NEXT
        bounds = self._quantile, self._limit_s, least, most, self._blocked
        return SetupSearch(self._setups, self._costs, *bounds, is_first=is_first, held=self._before)

    def _decide(self, setup: TunedSetup, cause: TuningReason, reason: str) -> TuningDecision | None:
        changed = setup != self.decision.setup
        self.decision = TuningDecision(setup, cause, reason)
        self._window, self._parts = TuningSample(), []
        if changed:
            self._settling_s = max(_SETTLE_S, _SETTLE_LATENCIES * min(self._mean_s, self._limit_s))
        return self.decision if changed else None

    # While setups are tried

    def _searched(self, window: TuningSample, parts: list[float]) -> TuningDecision | None:
        known = self._search.records.get(self.setup)
        if known is not None and _is_other_load(known, window):
            # The same setup has another load than before: what was measured says nothing about it.
            return self._search_again(window, TuningReason.LOAD_CHANGED)
        self._search.note(self.setup, window, parts)
        proposal = self._search.propose(self.setup)
        if not proposal.is_final:
            return self._decide(proposal.setup, TuningReason.EXPLORE, proposal.reason)
        self.is_searching = False
        self._held, self._held_s, self._odd = [], 0.0, 0
        self._doublings = min(self._doublings + 1, _MOST_DOUBLINGS) if proposal.setup == self._before else 0
        self._before = proposal.setup
        self._remember(self._search.records[proposal.setup], proposal.setup)
        return self._decide(proposal.setup, TuningReason.BEST, proposal.reason)

    def _remember(self, record: SetupRecord, setup: TunedSetup) -> None:
        load = _load_class(record.total.in_flight)
        self._remembered[load] = setup
        self._remembered.move_to_end(load)
        if len(self._remembered) > _LOADS:
            self._remembered.popitem(last=False)

    def _search_again(self, window: TuningSample, cause: TuningReason) -> TuningDecision | None:
        """Begin a search with what the model did just now; the costs of its batches are known."""
        present = self.setup
        if cause is TuningReason.LOAD_CHANGED:
            self._before, self._doublings = None, 0
        self._search = self._new_search()
        self.is_searching = True
        self._search.note(present, window)
        guess = self._remembered.get(_load_class(window.in_flight)) if cause is TuningReason.LOAD_CHANGED else None
        if guess is None or (guess.instances, guess.threads) in self._blocked:
            guess = self._search.best_guess()
        return self._decide(guess, cause, f"{_WHY[cause]}: tried first, by the cost of its batches")

    # While the best setup is held

    def _holding(self, window: TuningSample) -> TuningDecision | None:
        self._held_s += window.seconds
        known = self._search.records[self.setup]
        if _is_other_load(known, window):
            self._odd += 1
            if self._odd >= 2:
                return self._search_again(window, TuningReason.LOAD_CHANGED)
            return None
        self._odd = 0
        self._held = [*self._held, window][-_HELD_WINDOWS:]
        if len(self._held) < _HELD_WINDOWS:
            return None
        recent = self._held[0] + self._held[1] + self._held[2]
        cause = self._problem(known, recent)
        if cause is not None and self._held_s >= _PAUSES_S[cause] * 2**self._doublings:
            return self._search_again(recent, cause)
        return None

    def _problem(self, known: SetupRecord, recent: TuningSample) -> TuningReason | None:
        if recent.late_part > 1 - self._quantile and recent.late > 3:
            return TuningReason.ABOVE_LIMIT
        search, tail_s = self._search, recent.quantile_s(self._quantile)
        least = search.utility(known.total, known.tail_s) - max(_SLOWER, 3 * search.noise)
        if search.utility(recent, tail_s) < least:
            return TuningReason.SLOWER
        return None


def _is_other_load(known: SetupRecord, window: TuningSample) -> bool:
    """Whether more or fewer requests are in the server than before in the same setup.

    A throughput that changed while as many are there says that the model got faster or slower.
    """
    before, now = known.total.in_flight, window.in_flight
    return now > _STEP * before or now * _STEP < before


def _load_class(in_flight: float) -> int:
    return round(math.log2(max(in_flight, 0.25)))

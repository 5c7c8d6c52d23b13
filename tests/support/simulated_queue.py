"""A model behind a queue, simulated: batches of n rows cost a + b n, and instances share cores."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from naiad.scheduling.tuning.controller import TuningController, TuningDecision
from naiad.scheduling.tuning.sample import TuningSample
from naiad.scheduling.tuning.setup import TunedSetup
from naiad.telemetry.metrics.quantiles import counts_of

_ARRIVE, _DONE, _WAKE = range(3)


@dataclass(frozen=True)
class SimulatedModel:
    """What a batch costs.

    Args:
        fixed_s, row_s: of a batch, and of each of its rows, with one thread.
        serial: the part of it that further threads do not make faster.
        uses_cores: whether the time passes on the cores of the server, not on a device for each instance.
        devices: how many batches run side by side; 0 for any number.
        noise: the standard deviation of the time of a batch, as a part of it.
    """

    fixed_s: float
    row_s: float
    serial: float = 1.0
    uses_cores: bool = False
    devices: int = 0
    noise: float = 0.05

    def seconds(self, rows: int, setup: TunedSetup, running: int, cores: int) -> float:
        threads = max(setup.threads, 1)
        found = (self.fixed_s + self.row_s * rows) * (self.serial + (1 - self.serial) / threads)
        if self.uses_cores:
            found *= max(1.0, running * threads / cores)
        if self.devices:
            found *= max(1.0, running / self.devices)
        return found


class SimulatedQueue:
    """Callers that send one request after another, or requests at a rate, through batches of a setup.

    Attributes:
        callers: how many there are; each sends the next request a little after its response.
        rate: requests a second in their place; 0 for callers.
        setup: may be changed at any time.
        slowness: how many times as long batches take, as on a machine that does other things as well.
    """

    def __init__(self, model: SimulatedModel, setup: TunedSetup, callers: int = 0, rate: float = 0.0, cores: int = 2):
        self.model, self.setup, self.callers, self.rate, self.cores = model, setup, callers, rate, cores
        self.now = 0.0
        self.slowness = 1.0
        self._random = random.Random(7)
        self._events: list[tuple[float, int, int, object]] = []
        self._queue: deque[float] = deque()
        self._running = 0
        self._number = self._open = 0
        self._latencies: list[float] = []
        self._batches: defaultdict[int, list[float]] = defaultdict(list)
        self._is_sending = False

    def run(self, seconds: float, limit_s: float) -> TuningSample:
        """What happens in the next seconds."""
        end = self.now + seconds
        if self.rate and not self._is_sending:
            self._is_sending = True
            self._push(self.now, _ARRIVE, None)
        while not self.rate and self._open < self.callers:
            self._open += 1
            self._push(self.now + self._random.uniform(0, 0.001), _ARRIVE, None)
        while self._events and self._events[0][0] <= end:
            self.now, _, kind, what = heapq.heappop(self._events)
            self._handle(kind, what)
        self.now = end
        latencies, self._latencies = np.array(self._latencies), []
        batches, self._batches = self._batches, defaultdict(list)
        return TuningSample(
            seconds,
            len(latencies),
            len(latencies),
            float(latencies.sum()),
            int((latencies > limit_s).sum()),
            len(self._queue) + self._running,
            counts_of(latencies * 1e6),
            {rows: (len(times), sum(times)) for rows, times in batches.items()},
        )

    def _push(self, at: float, kind: int, what: object) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, kind, what))

    def _handle(self, kind: int, what: object) -> None:
        if kind == _ARRIVE:
            self._queue.append(self.now)
            if self.rate:
                self._push(self.now + self._random.expovariate(self.rate), _ARRIVE, None)
        elif kind == _DONE:
            self._running -= 1
            for arrived in what:  # type: ignore[attr-defined]
                self._latencies.append(self.now - arrived)
                if not self.rate:
                    if self._open <= self.callers:
                        self._push(self.now + self._random.uniform(0.0001, 0.0003), _ARRIVE, None)
                    else:
                        self._open -= 1
        self._dispatch()

    def _dispatch(self) -> None:
        setup = self.setup
        while self._queue and self._running < setup.instances:
            due = self._queue[0] + setup.delay_us / 1e6
            if len(self._queue) < setup.max_rows and self.now < due - 1e-9:
                self._push(due, _WAKE, None)
                return
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), setup.max_rows))]
            self._running += 1
            took = self.slowness * self.model.seconds(len(batch), setup, self._running, self.cores)
            took *= max(0.5, self._random.gauss(1.0, self.model.noise))
            self._batches[len(batch)].append(took)
            self._push(self.now + took, _DONE, batch)


def drive(
    queue: SimulatedQueue,
    controller: TuningController,
    seconds: float,
    limit_s: float,
    seen: Callable[[TuningDecision], object] = lambda decision: None,
    step_s: float = 0.25,
) -> TuningSample:
    """Let a controller set a queue up for some seconds; what happened in them."""
    total = TuningSample()
    for _ in range(round(seconds / step_s)):
        sample = queue.run(step_s, limit_s)
        total = total + sample
        decision = controller.decide() if controller.add(sample) else None
        if decision is not None:
            seen(decision)
            queue.setup = decision.setup
    return total


def best_offline(
    model: SimulatedModel, setups: list[TunedSetup], limit_s: float, quantile: float, callers: int, cores: int = 2
) -> float:
    """The most throughput of any setup that keeps the limit, each simulated by itself."""
    best = 0.0
    for setup in setups:
        queue = SimulatedQueue(model, setup, callers, cores=cores)
        queue.run(0.5, limit_s)
        found = queue.run(4.0, limit_s)
        if found.requests and found.late_part <= 1 - quantile:
            best = max(best, found.throughput)
    return best

"""What more cores and more front-end processes would give: a simulation of the server from measured costs.

Each process is a station that serves one request at a time and needs a core while it does; a request visits a front
end, the engine's loop, an instance, the engine's loop and its front end again. Where front ends run the model
themselves, it visits a front end, an instance of that process, and the front end again. Callers send the next request
as soon as they have a response, and cost nothing. Costs are processor time of a request, as
``scripts/bench --only frontends`` prints it at 64 connections; with more requests at a time they fall, since more of
them share a turn of the loop.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

REQUESTS = 4000
CALLERS_PER_CORE = 32


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor time of a request in us.

    Attributes:
        one: the loop of a server of one process.
        front: a front-end process.
        engine: the loop of the engine's process.
        model: an instance.
        replica: the loop of a front-end process that runs the model itself.
    """

    one: float
    front: float
    engine: float
    model: float
    replica: float


@dataclass(slots=True)
class Station:
    """Something that serves one request at a time: ``queue`` waits for it, ``busy_us`` is how long it has served."""

    name: str
    queue: deque[tuple[int, int]] = field(default_factory=deque)
    is_busy: bool = False
    busy_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Responses per second, and what was used the most: a kind of process, or the cores."""

    rate: float
    bottleneck: str


Visit = tuple[Sequence[Station], float]
"""The stations of one kind, of which a request uses its own, and the time that it takes there in us."""


def simulate(visits: Sequence[Visit], cores: int, callers: int, requests: int = REQUESTS) -> Outcome:
    """Serve ``requests`` requests, each of which makes all ``visits`` in order."""
    stations = list({id(s): s for kind, _ in visits for s in kind}.values())
    # Whatever waits for a core, oldest first: a station is here once, however many requests wait for it.
    ready: deque[Station] = deque()
    waiting: set[int] = set()
    events: list[tuple[float, int, int, int, Station]] = []
    free, now, done, number = cores, 0.0, 0, 0
    core_us = 0.0

    def arrive(request: int, step: int) -> None:
        kind, _ = visits[step]
        station = kind[request % len(kind)]
        station.queue.append((request, step))
        if not station.is_busy and id(station) not in waiting:
            ready.append(station)
            waiting.add(id(station))

    for request in range(callers):
        arrive(request, 0)
    while done < requests:
        while free and ready:
            station = ready.popleft()
            waiting.discard(id(station))
            request, step = station.queue.popleft()
            station.is_busy, free, number = True, free - 1, number + 1
            took_us = visits[step][1]
            station.busy_us += took_us
            core_us += took_us
            heapq.heappush(events, (now + took_us, number, request, step, station))
        now, _, request, step, station = heapq.heappop(events)
        free += 1
        station.is_busy = False
        if station.queue:
            ready.append(station)
            waiting.add(id(station))
        if step + 1 < len(visits):
            arrive(request, step + 1)
        else:
            done += 1
            arrive(request, 0)
    used = {s.name: max(x.busy_us for x in stations if x.name == s.name) / now for s in stations}
    used["cores"] = core_us / now / cores
    # Cores first: a station that waits for a core is not what is missing.
    bottleneck = "cores" if used["cores"] > 0.97 else max(used, key=lambda name: used[name])
    return Outcome(done / now * 1e6, bottleneck)


def one_process(costs: Costs, cores: int, instances: int) -> Outcome:
    """A server of one process."""
    loop, models = [Station("loop")], [Station("instances") for _ in range(instances)]
    visits: list[Visit] = [(loop, costs.one / 2), (models, costs.model), (loop, costs.one / 2)]
    return simulate(visits, cores, CALLERS_PER_CORE * cores)


def front_ends(costs: Costs, cores: int, fronts: int, instances: int) -> Outcome:
    """A server with ``fronts`` front-end processes."""
    front, engine = [Station("front ends") for _ in range(fronts)], [Station("engine's loop")]
    models = [Station("instances") for _ in range(instances)]
    visits: list[Visit] = [
        (front, costs.front / 2),
        (engine, costs.engine / 2),
        (models, costs.model),
        (engine, costs.engine / 2),
        (front, costs.front / 2),
    ]
    return simulate(visits, cores, CALLERS_PER_CORE * cores)


def replicas(costs: Costs, cores: int, fronts: int, instances: int) -> Outcome:
    """A server with ``fronts`` front-end processes, which have the ``instances`` of the model."""
    front, models = [Station("front ends") for _ in range(fronts)], [Station("instances") for _ in range(fronts)]
    visits: list[Visit] = [(front, costs.replica / 2), (models, costs.model), (front, costs.replica / 2)]
    return simulate(visits, cores, CALLERS_PER_CORE * cores)


Simulation = Callable[[Costs, int, int, int], Outcome]
"""``front_ends`` or ``replicas``."""


def best_count(simulation: Simulation, costs: Costs, cores: int, instances: int) -> tuple[int, Outcome]:
    """The smallest number of front-end processes, up to one for each core, within 2% of the best rate."""
    counts = sorted({1 << n for n in range(cores.bit_length()) if 1 << n <= cores} | {cores, max(1, cores // 4)})
    found = [(count, simulation(costs, cores, count, instances)) for count in counts]
    best = max(outcome.rate for _, outcome in found)
    return next((count, outcome) for count, outcome in found if outcome.rate >= 0.98 * best)


def table(costs: Costs, cores: Sequence[int]) -> str:
    """The curve, two lines for each number of cores: the engine runs the model, or the front ends do."""
    rows = [("cores", "one process/s", "model in", "front ends", "rate/s", "ratio", "bottleneck")]
    ways: tuple[tuple[str, Simulation], ...] = (("the engine", front_ends), ("front ends", replicas))
    for count in cores:
        # As many instances as cores, so that the model is not what is missing.
        one = one_process(costs, count, count)
        for name, simulation in ways:
            fronts, many = best_count(simulation, costs, count, count)
            ratio = f"{many.rate / one.rate:.2f}"
            figures = f"{one.rate:,.0f}", name, str(fronts), f"{many.rate:,.0f}", ratio, many.bottleneck
            rows.append((str(count), *figures))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)

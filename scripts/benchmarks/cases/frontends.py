"""Several front-end processes against one, on all cores of the machine: what they serve, and what each costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psutil

from .. import machine, models
from ..figures import Bound, Figure
from ..infer import check_answer
from ..load import Contender, Load
from ..load import measure as measure_load
from ..rounds import alternate, median, median_ratio
from ..servers import Server, naiad
from ..settings import Settings
from .mlp import input_row, our_request, rate

CONNECTIONS = 64
PROCESSES = 2
WANTED = 1.3


@dataclass(frozen=True, slots=True)
class Shares:
    """The processor time of one measurement in us/request: of all front-end processes together, of the event loop of
    the process that runs the models, and of its other threads."""

    load: Load
    front_us: float
    loop_us: float
    model_us: float

    @property
    def cores(self) -> float:
        """How many cores the server kept busy."""
        return self.load.cpu_us * self.load.rate / 1e6


def fronts_of(server: Server) -> list[psutil.Process]:
    """The front-end processes: the children that listen on the HTTP port."""
    return [
        child
        for child in psutil.Process(server.pid).children()
        if any(c.laddr.port == server.port and c.status == psutil.CONN_LISTEN for c in child.net_connections("tcp"))
    ]


def loop_us_of(server: Server) -> float:
    """The processor time in us that the event loop has used beside the models: that of the first thread."""
    metrics = [p for p in (psutil.Process(server.pid), *psutil.Process(server.pid).children()) if _has_models(p)]
    return sum(t.user_time + t.system_time for p in metrics for t in p.threads() if t.id == p.pid) * 1e6


def _has_models(process: psutil.Process) -> bool:
    """Whether a process runs models: it has loaded the framework."""
    return any("onnxruntime" in found.path for found in process.memory_maps())


def cpu_us_of(processes: list[psutil.Process]) -> float:
    """The processor time that they have used, in us."""
    return sum(machine.cpu_seconds(process.pid) for process in processes) * 1e6


def take(settings: Settings, contender: Contender, seconds: int) -> Shares:
    """Measure one server, and which of its processes used the time."""
    fronts = fronts_of(contender.server)
    before, loop_before = cpu_us_of(fronts), loop_us_of(contender.server)
    load = measure_load(contender.server, contender.request, CONNECTIONS, seconds, settings.work, pin=False)
    front_us = (cpu_us_of(fronts) - before) / load.requests
    loop_us = (loop_us_of(contender.server) - loop_before) / load.requests
    return Shares(load, front_us, loop_us, load.cpu_us - front_us - loop_us)


@contextmanager
def contenders(settings: Settings) -> Iterator[dict[str, Contender]]:
    """One process, and several front ends, with the same small network."""
    repository = settings.work / "frontends"
    models.add_mlp(repository)
    with ExitStack() as stack:
        found: dict[str, Contender] = {}
        for name, count in (("one", 1), ("two", PROCESSES)):
            options = ["--frontend-processes", str(count)]
            server = stack.enter_context(naiad(repository, settings.work, None, options))
            check_answer(server.port, our_request(), "y", models.mlp_by_hand(input_row()))
            found[name] = Contender(server, our_request())
        yield found


def measure(settings: Settings) -> Iterator[Figure]:
    """Rate and processor time of both, in turns; server and load generator share all cores."""
    with contenders(settings) as servers:
        for contender in servers.values():
            take(settings, contender, 1)
        measures = {
            name: (lambda contender=contender: take(settings, contender, settings.seconds))
            for name, contender in servers.items()
        }
        found = alternate(settings.rounds, measures)
    yield from figures(found["one"], found["two"])


def figures(one: list[Shares], two: list[Shares]) -> Iterator[Figure]:
    """The lines of the table."""
    unit = "CPU us/request"
    loads = {"one": [s.load for s in one], "two": [s.load for s in two]}
    note = f"{CONNECTIONS} connections, the load generator on the same {len(machine.cores())} cores"
    yield Figure("frontends_one_rate", median(loads["one"], rate), "requests/s", note=note)
    yield Figure("frontends_two_rate", median(loads["two"], rate), "requests/s", note=note)
    ratio = median_ratio(loads["two"], loads["one"], rate)
    yield Figure("frontends_ratio", ratio, "of one process", Bound(">=", WANTED), "pair by pair")
    yield Figure("frontends_one_cpu", median(loads["one"], lambda load: load.cpu_us), unit)
    yield Figure("frontends_two_cpu", median(loads["two"], lambda load: load.cpu_us), unit)
    yield Figure("frontends_front_cpu", median(two, lambda s: s.front_us), unit, note="both front ends")
    yield Figure("frontends_engine_loop_cpu", median(two, lambda s: s.loop_us), unit, note="without the model")
    yield Figure("frontends_one_loop_cpu", median(one, lambda s: s.loop_us), unit, note="without the model")
    yield Figure("frontends_model_cpu", median(one, lambda s: s.model_us), unit, note="threads of the model")
    yield Figure("frontends_one_cores", median(one, lambda s: s.cores), "cores busy")
    yield Figure("frontends_two_cores", median(two, lambda s: s.cores), "cores busy")

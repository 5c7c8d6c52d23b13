"""Several front-end processes against one, on all cores of the machine: what they serve, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import psutil

from .. import machine, models, python_models
from ..figures import Bound, Figure
from ..infer import binary_request, check_answer
from ..load import Contender, Load
from ..load import measure as measure_load
from ..rounds import alternate, median, median_ratio
from ..servers import Server, await_replicas, naiad
from ..settings import Settings
from .mlp import input_row, our_request, rate
from .python_identity import IMAGE

CONNECTIONS = 64
PROCESSES = 2
WANTED = 1.3
LARGE_MODEL = "python_identity"


@dataclass(frozen=True, slots=True)
class Shares:
    """The processor time of one measurement in us/request: of the event loops of all front-end processes together and
    of their other threads, of the event loop and the other threads of the process that has all models, and of the load
    generator."""

    load: Load
    front_us: float
    front_model_us: float
    loop_us: float
    model_us: float
    generator_us: float

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


def used_us(processes: list[psutil.Process]) -> tuple[float, float]:
    """The processor time in us that the event loops of processes have used, their first threads, and all others."""
    loops = others = 0.0
    for process in processes:
        for thread in process.threads():
            used = (thread.user_time + thread.system_time) * 1e6
            if thread.id == process.pid:
                loops += used
            else:
                others += used
    return loops, others


def take(settings: Settings, contender: Contender, seconds: int) -> Shares:
    """Measure one server, and which of its processes used the time."""
    server = contender.server
    fronts = fronts_of(server)
    main = psutil.Process(server.pid)
    # The only children of a single process are its workers, whose time is in the load alone.
    engine = [p for p in (main, *main.children()) if p not in fronts] if fronts else [main]
    before = (*used_us(fronts), *used_us(engine), machine.finished_children_s() * 1e6)
    load = measure_load(server, contender.request, CONNECTIONS, seconds, settings.work, pin=False)
    after = (*used_us(fronts), *used_us(engine), machine.finished_children_s() * 1e6)
    return Shares(load, *((now - then) / load.requests for now, then in zip(after, before, strict=True)))


@contextmanager
def contenders(settings: Settings) -> Iterator[dict[str, Contender]]:
    """The same small network in one process, in front ends that run it, and in the engine behind as many front ends.

    The first two have as many instances as there are front ends, the last has one.
    """
    repositories = {count: settings.work / f"frontends-{count}" for count in (1, PROCESSES)}
    for count, repository in repositories.items():
        models.add_mlp(repository, count=count)
    with ExitStack() as stack:
        found: dict[str, Contender] = {}
        for name, count, instances in (("one", 1, PROCESSES), ("two", PROCESSES, PROCESSES), ("engine", PROCESSES, 1)):
            options = ["--frontend-processes", str(count)]
            server = stack.enter_context(naiad(repositories[instances], settings.work, None, options))
            if count > 1:
                await_replicas(server, PROCESSES if instances > 1 else 0)
            check_answer(server.port, our_request(), "y", models.mlp_by_hand(input_row()))
            found[name] = Contender(server, our_request())
        yield found


def large(settings: Settings) -> Iterator[Figure]:
    """600 KB each way to a Python model: what a request costs the process that has it, alone and behind front ends."""
    repository = settings.work / "frontends-600kb"
    python_models.add_python_identity(repository, LARGE_MODEL)
    values = np.random.default_rng(0).random((1, IMAGE), np.float32)
    request = binary_request(LARGE_MODEL, {"INPUT0": values}, "OUTPUT0")
    measures: dict[str, Callable[[], Shares]] = {}
    with ExitStack() as stack:
        for name, count in (("one", 1), ("two", PROCESSES)):
            options = ["--frontend-processes", str(count)]
            server = stack.enter_context(naiad(repository, settings.work, None, options))
            check_answer(server.port, request, "OUTPUT0", values)
            measures[name] = partial(take, settings, Contender(server, request), settings.seconds)
            take(settings, Contender(server, request), 1)
        found = alternate(settings.rounds, measures)
    unit = "CPU us/request"
    for name, shares in found.items():
        note = f"600 KB each way, {CONNECTIONS} connections"
        yield Figure(f"frontends_600kb_{name}_rate", median(shares, lambda s: s.load.rate), "requests/s", note=note)
        yield Figure(f"frontends_600kb_{name}_cpu", median(shares, lambda s: s.load.cpu_us), unit, note="all processes")
        yield Figure(f"frontends_600kb_{name}_engine", median(shares, lambda s: s.loop_us), unit, note="its event loop")
    yield Figure("frontends_600kb_front", median(found["two"], lambda s: s.front_us), unit, note="both front ends")


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
    yield from figures(**found)


def figures(one: list[Shares], two: list[Shares], engine: list[Shares]) -> Iterator[Figure]:
    """The lines of the table."""
    unit = "CPU us/request"
    loads = {"one": [s.load for s in one], "two": [s.load for s in two], "engine": [s.load for s in engine]}
    note = f"{CONNECTIONS} connections, the load generator on the same {len(machine.cores())} cores"
    for name, found in loads.items():
        yield Figure(f"frontends_{name}_rate", median(found, rate), "requests/s", note=note)
    ratio = median_ratio(loads["two"], loads["one"], rate)
    yield Figure("frontends_ratio", ratio, "of one process", Bound(">=", WANTED), "pair by pair")
    cores = len(machine.cores())
    most = median(one, lambda s: cores * 1e6 / (s.load.cpu_us + s.generator_us) / s.load.rate)
    note = f"if a request cost no more on {cores} busy cores, of which wrk takes its part"
    yield Figure("frontends_most", most, "of one process", note=note)
    yield Figure("frontends_wrk_cpu", median(one, lambda s: s.generator_us), unit)
    ratio = median_ratio(loads["engine"], loads["one"], rate)
    yield Figure("frontends_engine_ratio", ratio, "of one process", note="one instance, in the engine's process")
    for name, found in loads.items():
        yield Figure(f"frontends_{name}_cpu", median(found, lambda load: load.cpu_us), unit)
    yield Figure("frontends_replica_loop_cpu", median(two, lambda s: s.front_us), unit, note="without the model")
    yield Figure("frontends_front_cpu", median(engine, lambda s: s.front_us), unit, note="both, the engine runs it")
    yield Figure("frontends_engine_loop_cpu", median(engine, lambda s: s.loop_us), unit, note="without the model")
    yield Figure("frontends_one_loop_cpu", median(one, lambda s: s.loop_us), unit, note="without the model")
    yield Figure("frontends_model_cpu", median(one, lambda s: s.model_us), unit, note="threads of the model")
    yield Figure("frontends_one_cores", median(one, lambda s: s.cores), "cores busy")
    yield Figure("frontends_two_cores", median(two, lambda s: s.cores), "cores busy")

"""What metrics, slow requests and traces cost: the small network of ``mlp`` with them on, beside a server without."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median as middle

from .. import machine, models
from ..figures import Bound, Figure
from ..load import Load
from ..load import measure as measure_load
from ..rounds import adjacent_pairs, median, median_ratio
from ..servers import Server, naiad
from ..settings import Settings
from .mlp import CONNECTIONS, our_request, rate

METRICS = ("--metrics-config=summary_latencies=true", "--metrics-config=histogram_latencies=true")
ALL_ON = (*METRICS, "--slow-requests=100")
TRACED = ("--trace-config=level=TIMESTAMPS", "--trace-config=rate=100")
BOUNDS = {"slow": 0.99, "on": 0.98, "traced": 0.95}
SERVERS = 10
"""Two processes of the same program differ by several hundredths for as long as they live, since their memory lies
elsewhere: each ratio is the median over so many pairs of them."""
TURNS = 8
"""Of a second each, in which the two servers of a pair are measured: a machine that drifts does so for both."""


def measure(settings: Settings) -> Iterator[Figure]:
    """Rates and processor time at 64 connections: servers with telemetry in turns with servers without."""
    repository = settings.work / "telemetry"
    models.add_mlp(repository)
    traces = f"--trace-config=triton,file={settings.work / 'traces.json'}"
    options = {"slow": ("--slow-requests=100",), "on": ALL_ON, "traced": (*ALL_ON, *TRACED, traces)}
    for name, given in options.items():
        count = 1 if settings.quick else SERVERS
        yield from figures(name, [_pair(settings, repository, given, number) for number in range(count)])


def figures(name: str, pairs: Sequence[tuple[Sequence[Load], Sequence[Load]]]) -> Iterator[Figure]:
    """The lines of the table about servers with telemetry (first in each pair) and those without."""
    ratios = sorted(median_ratio(on, off, rate) for on, off in pairs)
    spread = f"the middle half {ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
    without = middle(median(off, rate) for _, off in pairs)
    yield Figure(f"telemetry_{name}_off_rate", without, "requests/s", note="default options")
    note = f"{len(ratios)} pairs of servers, {spread}"
    yield Figure(f"telemetry_{name}_ratio", middle(ratios), "of the rate", Bound(">=", BOUNDS[name]), note)
    cheaper = middle(median_ratio(off, on, _cpu) for on, off in pairs)
    yield Figure(f"telemetry_{name}_cpu_ratio", cheaper, "", note="CPU of a request without, over that with")
    more = middle(median(on, _cpu) - median(off, _cpu) for on, off in pairs)
    yield Figure(f"telemetry_{name}_cpu", more, "CPU us/request", note="more than without")


def _pair(
    settings: Settings, repository: Path, options: Sequence[str], number: int = 0
) -> tuple[list[Load], list[Load]]:
    """The loads of a new server with ``options`` and of one without, second by second.

    Which of them starts first changes from pair to pair: the later one may get other memory.
    """
    core = machine.server_core()
    given = {"on": tuple(options), "off": ()}
    names = ("off", "on") if number % 2 else ("on", "off")
    with ExitStack() as stack:
        servers = {name: stack.enter_context(naiad(repository, settings.work, core, given[name])) for name in names}
        for server in servers.values():
            stack.enter_context(_stopped(server))
        take_on, take_off = (partial(_take, settings, servers[name]) for name in ("on", "off"))
        # The first turn of each warms it up.
        take_on()
        take_off()
        return adjacent_pairs(2 if settings.quick else TURNS, take_on, take_off)


@contextmanager
def _stopped(server: Server) -> Iterator[None]:
    """Stop the process of a server within the block: what it does without requests is no part of the other's load."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def _take(settings: Settings, server: Server) -> Load:
    os.kill(server.pid, signal.SIGCONT)
    try:
        return measure_load(server, our_request(), CONNECTIONS, 1, settings.work)
    finally:
        os.kill(server.pid, signal.SIGSTOP)


def _cpu(load: Load) -> float:
    return load.cpu_us

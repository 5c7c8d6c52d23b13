"""ModelInfer over gRPC as the official perf_analyzer sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from .. import grpc_sketch, machine
from ..figures import Figure
from ..perf_analyzer import Analysis, analyze, find_tool, plan
from ..rounds import alternate, median, median_ratio
from ..servers import GRPC, Server, naiad, sketch
from ..settings import Settings
from .grpc_unary import LARGE, NOTES, RATIO_BOUND, SMALL, contender, identity_repository

CONCURRENCIES = (1, 16, 64)
NAMES = {SMALL: "analyzer", LARGE: "analyzer_large"}


def measure(settings: Settings) -> Iterator[Figure]:
    """Its rates at 1, 16 and 64 calls in flight, and the server's processor time of an inference."""
    tool = find_tool(settings)
    core = machine.server_core()
    with ExitStack() as stack:
        repository = identity_repository(settings, "grpc-perf-analyzer")
        servers = {"ours": stack.enter_context(naiad(repository, settings.work, core, service=GRPC))}
        if script := settings.sketch("h2_server.py"):
            launcher = Path(grpc_sketch.__file__)
            servers["sketch"] = stack.enter_context(sketch(launcher, settings.work, core, [str(script.parent)]))
        for elements, name in NAMES.items():
            for server in servers.values():
                contender(server, elements)
            for concurrency in CONCURRENCIES:
                analyses = compare(settings, tool, servers, elements, concurrency)
                yield from figures(f"{name}_{concurrency}", NOTES[elements], analyses)


def compare(
    settings: Settings, tool: Path, servers: dict[str, Server], elements: int, concurrency: int
) -> dict[str, list[Analysis]]:
    """Analyse the servers in alternating rounds, each with as many calls as it answers in the time of a measurement."""
    measures: dict[str, Callable[[], Analysis]] = {}
    for name, server in servers.items():
        planned = plan(tool, server, elements, concurrency, settings.seconds, settings.work)
        measures[name] = partial(analyze, tool, server, planned, settings.seconds, settings.work)
    return alternate(settings.rounds, measures)


def figures(name: str, note: str, analyses: dict[str, list[Analysis]]) -> Iterator[Figure]:
    """The lines of the table for one size and one number of calls in flight."""
    ours = analyses["ours"]
    yield Figure(f"{name}_rate", median(ours, _rate), "inferences/s", note=note)
    yield Figure(f"{name}_p99", median(ours, lambda analysis: analysis.p99_us), "us")
    yield Figure(f"{name}_cpu", median(ours, _cpu_us), "CPU us/inference")
    if theirs := analyses.get("sketch"):
        yield Figure(f"{name}_sketch_rate", median(theirs, _rate), "inferences/s", note="h2_server.py")
        yield Figure(f"{name}_sketch_cpu", median(theirs, _cpu_us), "CPU us/inference")
        ratio = median_ratio(ours, theirs, _rate)
        yield Figure(f"{name}_ratio", ratio, "of the sketch", RATIO_BOUND, "pair by pair")


def _rate(analysis: Analysis) -> float:
    return analysis.rate


def _cpu_us(analysis: Analysis) -> float:
    return analysis.cpu_us

"""The small network in threads of the server, in a process of its own, and in one that models share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from .. import machine, models
from ..figures import Figure
from ..infer import Request, binary_request, check_answer
from ..load import Contender, Load, compare
from ..rounds import alternate, median, median_ratio
from ..servers import Server, naiad
from ..settings import Settings
from .mlp import input_row

WAYS = ("thread", "process", "shared")
CONNECTIONS = (1, 16, 64)
MODELS = 4


def measure(settings: Settings) -> Iterator[Figure]:
    """Latencies, rate and processor time of each way at 1, 16 and 64 connections, nothing pinned; and memory."""
    yield from speed(settings)
    yield from memory(settings)


def speed(settings: Settings) -> Iterator[Figure]:
    """The ways in turns; each has a server of its own, of which the others are idle meanwhile."""
    with ExitStack() as stack:
        contenders: dict[str, Contender] = {}
        for way in WAYS:
            server = stack.enter_context(naiad(repository(settings, way, 1), settings.work))
            contenders[way] = Contender(server, checked(server, 0))
        for connections in CONNECTIONS:
            loads = compare(settings, contenders, connections, pin=False)
            for way in WAYS:
                yield from figures(f"execution_{way}_{connections}", loads[way])
            for way in WAYS[1:]:
                ratio = median_ratio(loads[way], loads["thread"], lambda load: load.p99_us)
                yield Figure(f"execution_{way}_{connections}_ratio", ratio, "p99 of thread", note="pair by pair")


def figures(name: str, loads: list[Load]) -> Iterator[Figure]:
    """The lines of the table for one way and one number of connections."""
    yield Figure(f"{name}_p50", median(loads, lambda load: load.p50_us), "us")
    yield Figure(f"{name}_p99", median(loads, lambda load: load.p99_us), "us")
    yield Figure(f"{name}_rate", median(loads, lambda load: load.rate), "requests/s")
    yield Figure(f"{name}_cpu", median(loads, lambda load: load.cpu_us), "CPU us/request", note="whole process tree")


def memory(settings: Settings) -> Iterator[Figure]:
    """Proportional memory of server and processes with one model and with four, each having answered a request."""
    for way in WAYS:
        found = alternate(settings.rounds, {str(n): partial(held, settings, way, n) for n in (1, MODELS)})
        one, several = (median(found[str(n)], float) for n in (1, MODELS))
        for count, size in ((1, one), (MODELS, several)):
            yield Figure(f"execution_{way}_memory_{count}", size / machine.MIB, "MiB", note="PSS, whole process tree")
        each = (several - one) / (MODELS - 1) / machine.MIB
        yield Figure(f"execution_{way}_memory_each", each, "MiB/model", note="what one more model costs")


def held(settings: Settings, way: str, count: int) -> int:
    """Memory of a server with so many models. No other server runs, whose share of the libraries would count."""
    with naiad(repository(settings, way, count), settings.work) as server:
        for number in range(count):
            checked(server, number)
        return machine.proportional_bytes(server.pid)


def repository(settings: Settings, way: str, count: int) -> Path:
    """A repository of ``count`` networks that run that way, made once."""
    folder = settings.work / f"execution-{way}-{count}"
    if not folder.exists():
        for number in range(count):
            models.add_mlp(folder, name(number))
            with (folder / name(number) / "config.pbtxt").open("a") as file:
                file.write(f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}\n')
    return folder


def name(number: int) -> str:
    """The name of a network."""
    return f"mlp{number}"


def checked(server: Server, number: int) -> Request:
    """The request for a network, which was answered rightly once."""
    request = binary_request(name(number), {"x": input_row()}, "y")
    check_answer(server.port, request, "y", models.mlp_by_hand(input_row()))
    return request

"""Python models once more, by load generators that cost little: the servers on one core, wrk or h2load on another.

perf_analyzer takes about as much processor time for a request as a fast server. Where all share two cores, it is
the same part of both rates, and their ratio comes out smaller than it is. wrk and h2load send the same bytes over and
over and look at no tensor, so every measurement begins with one request whose answer is looked at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from . import machine, python_load
from .infer import Array
from .perf_analyzer import Question
from .python_load import GrpcCallers, HttpCallers, LoadTool, Sample
from .regions import regions_for
from .rounds import alternate
from .servers import Server
from .settings import Settings


def light_tool(settings: Settings, protocol: python_load.Wire) -> LoadTool:
    """wrk for HTTP and h2load for gRPC, on the core for load generators."""
    return HttpCallers(settings.work, pin=True) if protocol == "http" else GrpcCallers(settings.work, pin=True)


@contextlib.contextmanager
def on_one_core(servers: Mapping[str, Server]) -> Iterator[None]:
    """All servers with their processes on the core for servers, and back on theirs in the end."""
    with contextlib.ExitStack() as stack:
        for server in servers.values():
            stack.enter_context(machine.held_on(server.pid, machine.server_core()))
        yield


def compare_pinned(
    settings: Settings, servers: Mapping[str, Server], question: Question, expected: Array, callers: Sequence[int]
) -> Iterator[tuple[int, dict[str, list[Sample]]]]:
    """What the servers do under so many callers, one number of them after the other, in alternating rounds.

    Raises:
        CaseError: an answer was not ``expected``, or a measurement failed.
        CaseSkippedError: the load generator is not installed.
    """
    tool = light_tool(settings, question.protocol)
    with regions_for(question, servers.values(), python_load.values(question)), on_one_core(servers):
        for count in callers:
            yield count, _compare(settings, tool, servers, question, expected, count)


def _compare(
    settings: Settings,
    tool: LoadTool,
    servers: Mapping[str, Server],
    question: Question,
    expected: Array,
    callers: int,
) -> dict[str, list[Sample]]:
    def take(server: Server, seconds: int) -> Sample:
        python_load.check(server, question, expected)
        return python_load.take(tool, server, question, callers, seconds)

    measures: dict[str, Callable[[], Sample]] = {}
    for name, server in servers.items():
        take(server, python_load.WARM_UP_SECONDS)
        measures[name] = partial(take, server, settings.seconds)
    return alternate(settings.rounds, measures)

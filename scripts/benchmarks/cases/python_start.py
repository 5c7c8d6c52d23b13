"""How soon a server with a Python model is ready, and how much memory large tensors leave behind in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .. import machine, python_models
from ..figures import Bound, CaseSkippedError, Figure
from ..perf_analyzer import Question
from ..python_contest import OURS, THEIRS, contenders
from ..python_load import SERVICES, load_tool
from ..rounds import alternate, median, median_ratio
from ..servers import Server, naiad, reference
from ..settings import Settings
from .python_identity import MODEL, TEN_MB

CALLERS = 4
SETTLE_SECONDS = 1.0
LATER_SECONDS = 10.0
KEPT_BOUND = Bound("<=", 50)


def python_start(settings: Settings) -> Iterator[Figure]:
    """From exec to the first 200 of /v2/health/ready, with one Python model."""
    repository = settings.work / "python-start"
    python_models.add_python_identity(repository)

    def ours() -> float:
        with naiad(repository, settings.work) as server:
            return server.ready_seconds

    measures: dict[str, Callable[[], float]] = {OURS: ours}
    if (executable := settings.reference) is not None:

        def theirs() -> float:
            with reference(executable, repository, settings.work) as server:
                return server.ready_seconds

        measures[THEIRS] = theirs
    seconds = alternate(settings.rounds, measures)
    yield Figure("python_start", median(seconds[OURS], float), "s", Bound("<=", 1.0), "one Python model")
    if others := seconds.get(THEIRS):
        yield Figure("python_start_reference", median(others, float), "s", note="the reference server")
        sooner = median_ratio(others, seconds[OURS], float)
        yield Figure("python_start_ratio", sooner, "times sooner", note="pair by pair")


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process tree holds, in bytes.

    Attributes:
        resident: every process counted by itself (RSS).
        proportional: what processes share counted once (PSS).
        shared: what lies in shared memory, mapped or not.
    """

    resident: int
    proportional: int
    shared: int


def look(server: Server) -> Memory:
    """The memory of a server now."""
    sizes = (machine.resident_bytes, machine.proportional_bytes, machine.shared_bytes)
    return Memory(*(size(server.pid) for size in sizes))


def python_memory(settings: Settings) -> Iterator[Figure]:
    """Idle, after tensors of 10 MB by 4 callers over HTTP and gRPC, and 10 seconds later.

    Raises:
        CaseSkippedError: the system is not Linux.
    """
    if sys.platform != "linux":
        raise CaseSkippedError("only Linux tells what memory processes share")
    repository = settings.work / "python-memory"
    python_models.add_python_identity(repository, MODEL)
    with contenders(settings, repository) as servers:
        for name, server in servers.items():
            ours = name == OURS
            title = "python_memory" if ours else "python_memory_reference"
            yield from _figures(title, _looks(settings, server), KEPT_BOUND if ours else None)


def _looks(settings: Settings, server: Server) -> Iterator[Memory]:
    time.sleep(SETTLE_SECONDS)
    yield look(server)
    for protocol, service in SERVICES.items():
        tool = load_tool(settings)
        question = Question(MODEL, TEN_MB, protocol)
        tool.put(server.at(service), question, CALLERS, settings.seconds)
    yield look(server)
    time.sleep(LATER_SECONDS)
    yield look(server)


def _figures(name: str, looks: Iterator[Memory], bound: Bound | None) -> Iterator[Figure]:
    idle, burst, later = looks
    for when, memory in (("idle", idle), ("burst", burst), ("later", later)):
        yield Figure(f"{name}_{when}", memory.resident / machine.MIB, "MiB", note=_parts(memory))
    kept = (later.resident - idle.resident) / machine.MIB
    yield Figure(f"{name}_kept", kept, "MiB", bound, f"RSS, {LATER_SECONDS:g} s after 10 MB x {CALLERS}")


def _parts(memory: Memory) -> str:
    proportional, shared = memory.proportional / machine.MIB, memory.shared / machine.MIB
    return f"RSS; PSS {proportional:.1f}, shared memory {shared:.1f}"

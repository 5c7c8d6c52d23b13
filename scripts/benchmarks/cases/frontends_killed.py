"""How long a server of several processes lacks one that was killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

from .. import machine, models
from ..figures import Bound, CaseError, Figure
from ..infer import ask, check_answer
from ..rounds import alternate, median
from ..servers import Server, naiad
from ..settings import Settings
from .frontends import PROCESSES, fronts_of
from .mlp import input_row, our_request

BACK = Bound("<=", 0.5)
LIMIT_S = 30
STEP_S = 0.02
QUIET_S, QUIET_SHARE = 0.5, 0.1
"""A server that takes less of a core than this share has started what it was to start, the process in reserve too."""


def measure(settings: Settings) -> Iterator[Figure]:
    """Time from SIGKILL of a front end until as many listen as before, and what callers see of a killed engine."""
    repository = settings.work / "frontends-killed"
    models.add_mlp(repository)
    options = ["--frontend-processes", str(PROCESSES)]
    with naiad(repository, settings.work, None, options) as server:
        check_answer(server.port, our_request(), "y", models.mlp_by_hand(input_row()))
        found = alternate(settings.rounds, {"front": lambda: front_back(server), "engine": lambda: engine_back(server)})
    yield Figure("frontends_killed_front", median(found["front"], lambda s: s[0]), "s", BACK, "until another listens")
    yield Figure("frontends_killed_refused", median(found["engine"], lambda s: s[0]), "s", BACK, "until a 503")
    yield Figure("frontends_killed_engine", median(found["engine"], lambda s: s[1]), "s", note="until models serve")


def front_back(server: Server) -> tuple[float, float]:
    """Kill a front end; the seconds until as many listen as before, twice."""
    _await_quiet(server)
    (killed, *_) = fronts_of(server)

    def is_back() -> bool:
        # A process that ends meanwhile cannot be looked at.
        with suppress(psutil.Error):
            others = fronts_of(server)
            return len(others) == PROCESSES and killed not in others
        return False

    began = time.perf_counter()
    killed.kill()
    took = _until(began, "another front end", is_back)
    return took, took


def engine_back(server: Server) -> tuple[float, float]:
    """Kill the engine's process; the seconds until a request is refused, and until one is served.

    Raises:
        CaseError: a request got neither a response nor a refusal, or one of the times was too long.
    """
    _await_quiet(server)
    engine = _engine_of(server)
    statuses: set[int] = set()

    def has(status: int) -> bool:
        found, _, body = ask(server.port, our_request())
        statuses.add(found)
        if found not in (200, 503):
            raise CaseError(f"expected 200 or 503 beside a killed engine, got {found}: {body[:200]!r}")
        return found == status

    began = time.perf_counter()
    engine.kill()
    refused = _until(began, "a refusal", lambda: has(503))
    return refused, _until(began, "the engine", lambda: has(200))


def _engine_of(server: Server) -> psutil.Process:
    """The process that listens on another port than the front ends: that of the metrics."""
    for child in psutil.Process(server.pid).children():
        ports = {c.laddr.port for c in child.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        if ports and server.port not in ports:
            return child
    raise CaseError("no process of the server has the metrics port")


def _await_quiet(server: Server) -> None:
    """Wait until no process of the server is being started any more.

    Raises:
        CaseError: that takes too long.
    """
    began = time.perf_counter()
    while True:
        used, at = machine.cpu_seconds(server.pid), time.perf_counter()
        time.sleep(QUIET_S)
        if machine.cpu_seconds(server.pid) - used < QUIET_SHARE * (time.perf_counter() - at):
            return
        if time.perf_counter() - began > LIMIT_S:
            raise CaseError(f"the server was still starting processes after {LIMIT_S} s")


def _until(began: float, what: str, holds: Callable[[], bool]) -> float:
    while not holds():
        if time.perf_counter() - began > LIMIT_S:
            raise CaseError(f"{what} was not there {LIMIT_S} s after a process was killed")
        time.sleep(STEP_S)
    return time.perf_counter() - began

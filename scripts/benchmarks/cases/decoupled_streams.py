"""Decoupled models: streams whose requests have ten responses each, of a Python model and of a built-in backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from .. import machine
from ..figures import Bound, Figure
from ..grpc_request import infer_message
from ..infer import Array
from ..python_contest import OURS, THEIRS, contenders
from ..python_models import add_decoupled, add_square
from ..rounds import alternate, median, median_ratio
from ..servers import GRPC, Server
from ..settings import Settings
from ..stream_callers import count_responses

RESPONSES = 10
CALLERS = (1, 8, 32)
WANTED = 2.0


@dataclass(frozen=True, slots=True)
class _Sample:
    """Responses per second, and the processor time of the server and its children for one, in us."""

    rate: float
    cpu_us: float


def python(settings: Settings) -> Iterator[Figure]:
    """A Python model that sends ten responses to each request, in turns with the reference server."""
    repository = settings.work / "decoupled"
    add_decoupled(repository, "decoupled")
    message = infer_message("decoupled", {"COUNT": _count()})
    with contenders(settings, repository) as servers:
        yield from _measure(settings, servers, "decoupled_python", message)


def square(settings: Settings) -> Iterator[Figure]:
    """The built-in backend ``square``, whose responses cost nothing: what the server itself needs for one."""
    repository = settings.work / "square"
    add_square(repository, "square")
    message = infer_message("square", {"IN": _count()})
    without_reference = Settings(settings.work, settings.rounds, settings.seconds, settings.quick)
    with contenders(without_reference, repository) as servers:
        yield from _measure(settings, servers, "decoupled_square", message)


def _count() -> Array:
    return np.array([RESPONSES], np.int32)


def _measure(settings: Settings, servers: dict[str, Server], title: str, message: bytes) -> Iterator[Figure]:
    for callers in CALLERS:
        measures = {
            name: partial(_sample, server.at(GRPC), message, callers, settings.seconds)
            for name, server in servers.items()
        }
        for measure in measures.values():
            measure()
        samples = alternate(settings.rounds, measures)
        yield from _figures(f"{title}_{callers}", samples)


def _sample(server: Server, message: bytes, callers: int, seconds: float) -> _Sample:
    before = machine.cpu_seconds(server.pid)
    rate = count_responses(server.port, message, RESPONSES, callers, seconds)
    return _Sample(rate, (machine.cpu_seconds(server.pid) - before) * 1e6 / (rate * seconds))


def _figures(name: str, samples: dict[str, list[_Sample]]) -> Iterator[Figure]:
    ours = samples[OURS]
    yield from _side(name, ours)
    if theirs := samples.get(THEIRS):
        yield from _side(f"{name}_reference", theirs)
        ratio = median_ratio(ours, theirs, lambda s: s.rate)
        yield Figure(f"{name}_ratio", ratio, "of its rate", Bound(">=", WANTED), "pair by pair")
        saved = median_ratio(theirs, ours, lambda s: s.cpu_us)
        yield Figure(f"{name}_saved", saved, "times cheaper", note="pair by pair")


def _side(name: str, samples: list[_Sample]) -> Iterator[Figure]:
    yield Figure(f"{name}_rate", median(samples, lambda s: s.rate), "responses/s")
    yield Figure(f"{name}_cpu", median(samples, lambda s: s.cpu_us), "CPU us/response", note="server and children")

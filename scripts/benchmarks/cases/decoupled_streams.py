"""Decoupled models: streams whose requests have ten responses each, of a Python model and of a built-in backend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..figures import Bound, CaseError, Figure
from ..model_load import measure_model, refuse_errors
from ..python_contest import OURS, THEIRS, contenders
from ..python_models import add_decoupled, add_square
from ..rounds import alternate, median, median_ratio
from ..servers import GRPC, Server
from ..settings import Settings

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
    stream = _Streams("decoupled_python", "decoupled", _counts(settings, "COUNT"))
    with contenders(settings, repository) as servers:
        yield from _measure(settings, servers, stream)


def square(settings: Settings) -> Iterator[Figure]:
    """The built-in backend ``square``, whose responses cost nothing: what the server itself needs for one."""
    repository = settings.work / "square"
    add_square(repository, "square")
    stream = _Streams("decoupled_square", "square", _counts(settings, "IN"))
    without_reference = Settings(settings.work, settings.rounds, settings.seconds, settings.quick)
    with contenders(without_reference, repository) as servers:
        yield from _measure(settings, servers, stream)


@dataclass(frozen=True, slots=True)
class _Streams:
    """What the figures are called, the model, and the file with its input."""

    title: str
    model: str
    data: Path


def _counts(settings: Settings, tensor: str) -> Path:
    file = settings.work / f"{tensor}.json"
    file.write_text(json.dumps({"data": [{tensor: {"content": [RESPONSES], "shape": [1]}}]}))
    return file


def _measure(settings: Settings, servers: dict[str, Server], streams: _Streams) -> Iterator[Figure]:
    for callers in CALLERS:
        measures = {
            name: partial(_sample, server.at(GRPC), streams, callers, settings.seconds)
            for name, server in servers.items()
        }
        for measure in measures.values():
            measure()
        samples = alternate(settings.rounds, measures)
        yield from _figures(f"{streams.title}_{callers}", samples)


def _sample(server: Server, streams: _Streams, callers: int, seconds: int) -> _Sample:
    options = ("-i", "grpc", "--streaming", "--input-data", streams.data, "--concurrency-range", callers)
    found = measure_model(server, streams.model, *options, "-p", seconds * 1000, "-r", 1)
    refuse_errors(found, f"{server.name} with {callers} streams")
    if abs(found.responses - found.requests * RESPONSES) > callers * RESPONSES:
        got = f"{found.responses} responses to {found.requests} requests"
        raise CaseError(f"{server.name}: {got}, expected {RESPONSES} to each")
    return _Sample(found.responses / found.duration_s, (found.usage.cpu_us_per_request or 0.0) / RESPONSES)


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

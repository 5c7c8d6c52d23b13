"""What metrics, slow requests and traces cost: the small network of ``mlp`` with them on, beside a server without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from .. import machine, models
from ..figures import Bound, Figure
from ..load import Load
from ..load import measure as measure_load
from ..rounds import adjacent_pairs, median, median_ratio
from ..servers import naiad
from ..settings import Settings
from .mlp import CONNECTIONS, our_request, rate

METRICS = ("--metrics-config=summary_latencies=true", "--metrics-config=histogram_latencies=true")
ALL_ON = (*METRICS, "--slow-requests=100")
TRACED = ("--trace-config=level=TIMESTAMPS", "--trace-config=rate=100")
BOUNDS = {"slow": 0.99, "on": 0.98, "traced": 0.95}
PAIRS = 25


def measure(settings: Settings) -> Iterator[Figure]:
    """Rates and processor time at 64 connections: each server with telemetry in turns with one without."""
    repository = settings.work / "telemetry"
    models.add_mlp(repository)
    traces = f"--trace-config=triton,file={settings.work / 'traces.json'}"
    options = {"slow": ("--slow-requests=100",), "on": ALL_ON, "traced": (*ALL_ON, *TRACED, traces)}
    for name, given in options.items():
        on, off = adjacent_pairs(
            _pairs(settings), partial(_take, settings, repository, given), partial(_take, settings, repository, ())
        )
        yield from figures(name, on, off)


def figures(name: str, on: Sequence[Load], off: Sequence[Load]) -> Iterator[Figure]:
    """The lines of the table about one server with telemetry and the one without."""
    ratios = sorted(ours.rate / theirs.rate for ours, theirs in zip(on, off, strict=True))
    note = f"{len(ratios)} pairs, the middle half {ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
    yield Figure(f"telemetry_{name}_off_rate", median(off, rate), "requests/s", note="default options")
    yield Figure(f"telemetry_{name}_ratio", median_ratio(on, off, rate), "of the rate", Bound(">=", BOUNDS[name]), note)
    cheaper = median_ratio(off, on, _cpu)
    yield Figure(f"telemetry_{name}_cpu_ratio", cheaper, "", note="CPU of a request without, over that with")
    more = median(on, _cpu) - median(off, _cpu)
    yield Figure(f"telemetry_{name}_cpu", more, "CPU us/request", note="more than without")


def _pairs(settings: Settings) -> int:
    return settings.rounds if settings.quick else max(settings.rounds, PAIRS)


def _take(settings: Settings, repository: Path, options: Sequence[str]) -> Load:
    """The load of a server of its own.

    Two processes of the same program differ by several hundredths for as long as they live, since their memory lies
    elsewhere. Where each pair has new ones, that is noise, which the median of many pairs takes away.
    """
    with naiad(repository, settings.work, machine.server_core(), options) as server:
        measure_load(server, our_request(), CONNECTIONS, 1, settings.work)
        return measure_load(server, our_request(), CONNECTIONS, settings.seconds, settings.work)


def _cpu(load: Load) -> float:
    return load.cpu_us

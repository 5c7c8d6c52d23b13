"""The round trip to the worker of a Python model, without a network and without a queue."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import partial

import uvloop

from .. import python_models
from ..figures import Figure
from ..round_trip import measure_batches, measure_trips
from ..rounds import alternate, median, percentile_us
from ..settings import Settings

ROWS = 16


def python_round_trip(settings: Settings) -> Iterator[Figure]:
    """One small request at a time, and batches of 16 of them."""
    repository = settings.work / "round-trip"
    python_models.add_python_identity(repository)

    def trips() -> array[float]:
        found: array[float] = uvloop.run(measure_trips(repository, settings.seconds))
        return found

    def batches() -> float:
        return float(uvloop.run(measure_batches(repository, ROWS, settings.seconds)))

    taken = alternate(settings.rounds, {"trips": trips})["trips"]
    rates = alternate(settings.rounds, {"batches": batches})["batches"]
    yield Figure("python_round_trip", median(taken, partial(percentile_us, share=0.5)), "us", note="16 floats, p50")
    yield Figure("python_round_trip_p99", median(taken, partial(percentile_us, share=0.99)), "us")
    yield Figure("python_batches", median(rates, float), "batches/s", note=f"of {ROWS} small requests each")

"""A finder of text at ten callers: a batcher off and on, with one instance and with two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..figures import Figure
from ..settings import Settings
from .experiment import ExperimentRow, Known, measure
from .networks import add_network, east

CALLERS = 10
PUBLISHED = {("off", 1): (213, 95), ("off", 2): (398, 58), ("on", 1): (409, 60), ("on", 2): (401, 54)}
"""Inferences/s and p95 in ms."""
BATCHERS = {"off": "", "on": "dynamic_batching { }"}


def east_like(settings: Settings) -> Iterator[Figure]:
    """The four combinations."""
    rows = [
        ExperimentRow(f"{batcher}_{count}", f"{batcher}_{count}", CALLERS, rate, p95_ms)
        for (batcher, count), (rate, p95_ms) in PUBLISHED.items()
    ]
    return measure(settings, "field_east", rows, _add_models)


def _add_models(repository: Path) -> Mapping[str, Known]:
    network = east()
    return {
        f"{batcher}_{count}": add_network(repository, f"{batcher}_{count}", network, BATCHERS[batcher], count=count)
        for batcher, count in PUBLISHED
    }

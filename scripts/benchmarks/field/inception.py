"""The optimization guide's example: an image classifier plain, batched, with two instances, and with both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..figures import Figure
from ..settings import Settings
from .experiment import ExperimentRow, Known, measure
from .networks import add_network, inception

PLAIN = {1: 62.6, 2: 73.2, 4: 73.4}
BATCHED = {1: 66.8, 2: 80.8, 4: 165.2, 8: 272}
TWO = {1: 70.6, 2: 106.6, 3: 110.2, 4: 108.6}
BOTH = 289.6
"""At 16 callers: 6% more than one instance with a batcher has at 8, for a p95 of 59.8 ms instead of 36.0."""


def inception_like(settings: Settings) -> Iterator[Figure]:
    """The published rows, and the batcher alone at 16 callers as well, to compare both with."""
    rows = [ExperimentRow(f"plain_{n}", "plain", n, rate) for n, rate in PLAIN.items()]
    rows += [ExperimentRow(f"batched_{n}", "batched", n, rate) for n, rate in BATCHED.items()]
    rows += [ExperimentRow(f"two_{n}", "two", n, rate) for n, rate in TWO.items()]
    rows += [ExperimentRow("batched_16", "batched", 16), ExperimentRow("both_16", "both", 16, BOTH, 59.8)]
    return measure(settings, "field_inception", rows, _add_models)


def _add_models(repository: Path) -> Mapping[str, Known]:
    network = inception()
    return {
        "plain": add_network(repository, "plain", network),
        "batched": add_network(repository, "batched", network, "dynamic_batching { }"),
        "two": add_network(repository, "two", network, count=2),
        "both": add_network(repository, "both", network, "dynamic_batching { }", count=2),
    }

"""The greatest size of a batch, 1 to 8, where a batch may wait for 100 ms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..figures import Figure
from ..settings import Settings
from .experiment import ExperimentRow, Known, measure
from .networks import add_network, inception

SIZES = (1, 2, 4, 8)
CALLERS = 8
DELAY_US = 100_000
PUBLISHED_GAIN = 2.7
"""The rate with a size of 8 over that with 1; the rates themselves were not published."""


def batch_sizes(settings: Settings) -> Iterator[Figure]:
    """The rate at eight callers by size; and what the delay costs a single caller, whose batch never fills."""
    rows = [ExperimentRow(f"size_{size}", _model(size), CALLERS) for size in SIZES]
    rows.append(ExperimentRow("size_8_alone", _model(8), 1))
    for figure in measure(settings, "field_batch", rows, _add_models):
        yield figure
        if figure.name == "field_batch_size_8_p95":
            note = "published for 8 over 1, an image network on a GPU"
            yield Figure("field_batch_published", PUBLISHED_GAIN, "of the first row", note=note)


def _model(size: int) -> str:
    return f"up_to_{size}"


def _add_models(repository: Path) -> Mapping[str, Known]:
    network = inception()
    batching = f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY_US} }}"
    return {_model(n): add_network(repository, _model(n), network, batching, max_batch_size=n) for n in SIZES}

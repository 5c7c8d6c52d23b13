"""The grid of ``--sweep``: one run for each combination of shape and batch size."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from naiad.perf.options.values import swept_shapes
from naiad.perf.settings import PerfSettings


def sweep_points(settings: PerfSettings) -> list[PerfSettings]:
    """The settings of each run, shapes before batch sizes, in the order in which they were given.

    What the sweep leaves out stays as the other options say. A shape without a name has the name ``""``: it is that of
    the model's only input. Without ``--sweep`` there is one run.
    """
    shapes = [swept_shapes(text) for text in settings.sweep.get("shape", ())] or [{}]
    sizes = [int(text) for text in settings.sweep.get("batch", ())] or [settings.input.batch_size]
    return [
        replace(
            settings,
            input=replace(settings.input, shapes=settings.input.shapes | shape, batch_size=size),
            sweep={},
        )
        for shape, size in product(shapes, sizes)
    ]

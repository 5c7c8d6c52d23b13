"""The grid of ``--sweep``: one run for each combination of shape and batch size."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

from naiad.perf.options.values import swept_shapes
from naiad.perf.settings import OutputSettings, PerfSettings


def sweep_points(settings: PerfSettings) -> list[PerfSettings]:
    """The settings of each run, shapes before batch sizes, in the order in which they were given.

    What the sweep leaves out stays as the other options say. A shape without a name has the name ``""``: it is that of
    the model's only input. The files of a run have what it varies in their names. Without ``--sweep`` there is one run.
    """
    if not settings.sweep:
        return [settings]
    return [
        _point(settings, shape, batch)
        for shape, batch in product(settings.sweep.get("shape", ("",)), settings.sweep.get("batch", ("",)))
    ]


def _point(settings: PerfSettings, shape: str, batch: str) -> PerfSettings:
    """One run; a text is empty where the sweep does not vary it."""
    given = settings.input
    words = [re.sub(r"[^\w.]+", "-", text) for text in (shape, f"b{batch}" if batch else "") if text]
    return replace(
        settings,
        input=replace(
            given,
            shapes=given.shapes | (swept_shapes(shape) if shape else {}),
            batch_size=int(batch) if batch else given.batch_size,
        ),
        output=_output(settings.output, "-".join(words)),
        sweep={},
    )


def _output(output: OutputSettings, words: str) -> OutputSettings:
    return replace(
        output,
        csv_file=_named(output.csv_file, words),
        profile_export_file=_named(output.profile_export_file, words),
        html_file=_named(output.html_file, words),
        json_file=_named(output.json_file, words),
    )


def _named(file: Path | None, words: str) -> Path | None:
    """``out.csv`` becomes ``out-3x224x224-b8.csv``."""
    return None if file is None else file.with_name(f"{file.stem}-{words}{file.suffix}")

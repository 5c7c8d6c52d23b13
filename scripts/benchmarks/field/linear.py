"""The tutorial of batching: 1,000 layers of one neuron, whose calls have a fixed cost and next to nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..figures import Figure
from ..models import add_linear_models
from ..settings import Settings
from .experiment import ExperimentRow, Known, measure

UNBATCHED = {1: 465, 2: 541, 3: 535, 4: 519}
BATCHED = {1: 518, 2: 656, 3: 946, 4: 1201, 16: 4142}


def linear(settings: Settings) -> Iterator[Figure]:
    """Without and with a dynamic batcher, at 1 to 4 callers, and batched at 16."""
    rows = [ExperimentRow(f"unbatched_{n}", "linear_unbatched", n, rate) for n, rate in UNBATCHED.items()]
    rows += [ExperimentRow(f"batched_{n}", "linear_model", n, rate) for n, rate in BATCHED.items()]
    return measure(settings, "field_linear", rows, _add_models)


def _add_models(repository: Path) -> Mapping[str, Known]:
    row = np.array([[0.5]], np.float32)
    _, answer = add_linear_models(repository, row)
    known = Known({"INPUT": row}, "OUTPUT", answer)
    return {"linear_model": known, "linear_unbatched": known}

"""The cases by name, in the order in which they run and are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..figures import Figure
from ..settings import Settings
from . import growth, heavy, large, linear_model, mixed, mlp, start, tail

Case = Callable[[Settings], Iterator[Figure]]

CASES: Mapping[str, Case] = {
    "mlp": mlp.measure,
    "large": large.measure,
    "linear_model": linear_model.measure,
    "tail": tail.measure,
    "heavy": heavy.measure,
    "start_ready": start.start_ready,
    "idle_memory": start.idle_memory,
    "import_time": start.import_time,
    "growth": growth.measure,
    "errors_beside_good": mixed.measure,
}

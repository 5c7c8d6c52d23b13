"""Small batches, whose inputs are gathered on the event loop before an instance in this process gets them."""

from __future__ import annotations

from functools import partial
from time import monotonic_ns

from naiad.config.spec import ModelSpec
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import gather, is_small
from naiad.execution.batching.ragged import assemble, is_small_assembly


class SmallBatchGatherer:
    """Gathers the inputs of the small batches of one model; the instance gathers those of large ones."""

    __slots__ = ("_gather", "_is_small", "_spec")

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._gather = gather if spec.assembly is None else assemble
        self._is_small = is_small if spec.assembly is None else partial(is_small_assembly, spec=spec)

    def gather(self, batch: Batch, now_ns: int) -> None:
        """Gather the inputs of a batch if it is small; never raises. ``now_ns``: when its batch was taken."""
        if self._is_small(batch):
            # In the instance's thread waiting for the interpreter lock would cost far more than the gathering.
            try:
                batch.inputs = self._gather(batch, self._spec)
            except Exception:
                # The instance raises it again, where it fails this batch alone.
                batch.inputs = None
            batch.gather_ns = monotonic_ns() - now_ns

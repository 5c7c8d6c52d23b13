"""A dynamic batcher with further limits of a batch: its bytes, or a rule of the model's own.

Source: the custom batching hooks of the reference, which are called after all other rules and can only refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from naiad.config.assembly import PadSpec
from naiad.config.spec import BatchingSpec
from naiad.request import InferRequest
from naiad.scheduling.batcher.dynamic import DynamicBatcher, Queue


class BatchLimit(Protocol):
    """Limits a batch. The batcher makes these calls for each batch that it tries, which may never run."""

    def begin(self, first: InferRequest) -> None:
        """Begin a batch with ``first``, which is always part of it."""

    def takes(self, request: InferRequest) -> bool:
        """Whether ``request`` joins the batch. After False the batch is complete."""

    def end(self) -> None:
        """End the batch. The other rules decide how many of its requests run."""


class LimitedBatcher(DynamicBatcher):
    """Batches requests as ``DynamicBatcher`` does, as long as all ``limits`` take the next request."""

    __slots__ = ("_limits",)

    def __init__(
        self, batching: BatchingSpec, max_batch_size: int, queue: Queue | None, limits: Sequence[BatchLimit]
    ) -> None:
        super().__init__(batching, max_batch_size, queue)
        self._limits = tuple(limits)

    def _walk(self) -> tuple[int, int, int, bool]:
        try:
            return self._walk_within()
        finally:
            # Also after an error: a rule of the model's own may hold state for the batch that has begun.
            for limit in self._limits:
                limit.end()

    def _walk_within(self) -> tuple[int, int, int, bool]:
        # The rules of ``DynamicBatcher._walk``, written out again so that models without limits do not pay for limits.
        max_rows, preferred, largest = self._max_rows, self._preferred, self._largest
        count = rows = best = 0
        begun = next(iter(self._queue))
        first = begun.options
        for limit in self._limits:
            limit.begin(begun)
        for request in self._queue:
            options = request.options
            if options.shape_key != first.shape_key:
                return count, rows, best, True
            total = rows + options.rows
            if total > largest and best == 0:
                best = count
            # The limits come last, as in the reference: they count each request that they take.
            if count and (total > max_rows or not self._may_join(request)):
                return count, rows, best, True
            rows = total
            count += 1
            if rows in preferred:
                best = count
        return count, rows, best, False

    def _may_join(self, request: InferRequest) -> bool:
        # An earlier limit may have counted a request that a later one refuses: the batch is complete then.
        return all(limit.takes(request) for limit in self._limits)


def input_bytes(request: InferRequest) -> int:
    """The bytes of the inputs of a request. With BYTES, all bytes of the request: counting each element takes long."""
    size = 0
    for array in request.inputs.values():
        if array.dtype.hasobject:
            return request.memory
        size += array.nbytes
    return size


class ByteLimit:
    """Bounds the bytes of the inputs of a batch, with their padding. A single request may have more."""

    __slots__ = ("_bytes", "_items", "_max_bytes", "_own", "_pads", "_rows")

    def __init__(self, max_bytes: int, pads: Mapping[str, PadSpec]) -> None:
        self._max_bytes = max_bytes
        self._pads = tuple(pads.items())
        self._bytes = self._rows = 0
        # Of each padded input the largest sizes so far; and the bytes of all padded inputs without their padding.
        self._items: dict[str, tuple[int, ...]] = {}
        self._own = 0

    def begin(self, first: InferRequest) -> None:
        self._bytes, self._rows, self._own = input_bytes(first), first.options.rows, 0
        self._items = {name: first.inputs[name].shape[1:] for name, _ in self._pads if name in first.inputs}
        self._own = self._own_of(first)

    def takes(self, request: InferRequest) -> bool:
        items = {name: tuple(map(max, item, request.inputs[name].shape[1:])) for name, item in self._items.items()}
        rows = self._rows + request.options.rows
        own = self._own + self._own_of(request)
        held = self._bytes + input_bytes(request)
        # Padded inputs count with the padded shape of the whole batch, all others as they are.
        size = held - own
        for name, pad in self._pads:
            if name in items:
                elements = rows
                for dim in pad.shape([items[name]]):
                    elements *= dim
                size += elements * request.inputs[name].dtype.itemsize
        if size > self._max_bytes:
            return False
        self._bytes, self._rows, self._own, self._items = held, rows, own, items
        return True

    def end(self) -> None:
        self._items = {}

    def _own_of(self, request: InferRequest) -> int:
        return sum([request.inputs[name].nbytes for name in self._items])

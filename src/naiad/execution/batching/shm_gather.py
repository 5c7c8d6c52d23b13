"""Batches whose requests have tensors in regions of clients: read in the instance's thread straight into the batch's
rows, and written from the rows of the results, before the event loop gets the batch back.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic
from typing import Final

import numpy as np

from naiad.config.spec import ModelSpec
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import gather, reshaped
from naiad.request import Array, InferRequest
from naiad.shared_memory.tensor_ref import RegionTensor
from naiad.worker.ipc.buffer_pool import BufferPool

POOL_BYTES: Final = 32 << 20
"""The memory that the thread of an instance keeps for reuse."""


class _Memory(threading.local):
    """Each thread's own pool; made when it is first needed."""

    def __init__(self) -> None:
        self._pool = BufferPool(POOL_BYTES)
        self._aged_s = monotonic()

    def take(self, size: int) -> Array:
        """A block, as ``BufferPool.take``."""
        # No timer runs in this thread, so the pool ages when it is used.
        passed_s = int(monotonic() - self._aged_s)
        if passed_s:
            self._aged_s += passed_s
            self._pool.age(passed_s)
        return self._pool.take(size)


_memory: Final = _Memory()


def gather_from_regions(batch: Batch, spec: ModelSpec) -> dict[str, Array]:
    """The inputs of a batch as ``gather`` gives them, where some are ``RegionTensor`` objects.

    Raises:
        NaiadError: a region cannot be read.
    """
    requests = batch.requests
    inputs: dict[str, Array] = {}
    others: list[str] = []
    for name in requests[0].inputs:
        tensors = [request.inputs[name] for request in requests]
        if any(isinstance(tensor, RegionTensor) for tensor in tensors):
            inputs[name] = _read(tensors)
        else:
            others.append(name)
    return {**gather(batch, spec, others), **reshaped(inputs, spec)}


def _read(tensors: list[Array]) -> Array:
    """Tensors that differ in their first dimension only, one behind the other."""
    first = tensors[0]
    block = _memory.take(sum(tensor.nbytes for tensor in tensors))
    at = 0
    for tensor in tensors:
        rows = block[at : at + tensor.nbytes]
        at += tensor.nbytes
        if isinstance(tensor, RegionTensor):
            tensor.read_into(rows.data)
        elif tensor.nbytes:
            rows[:] = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    shape = first.shape if len(tensors) == 1 else (sum(t.shape[0] for t in tensors), *first.shape[1:])
    found: Array = block[:at].view(first.dtype).reshape(shape)
    return found


def place_results(batch: Batch, results: Mapping[str, Array]) -> None:
    """Write the outputs that requests want in regions of their clients.

    Raises:
        NaiadError: one cannot be written, or is larger than its part of the region.
    """
    # In the instance's thread: a copy into a region would occupy the loop.
    row = 0
    for request in batch.requests:
        end = row + request.options.rows
        use = request.use
        if use is not None and use.outputs and _are_files(request):
            use.place(results if len(batch.requests) == 1 else {n: a[row:end] for n, a in results.items()})
            use.is_placed = True
        row = end


def _are_files(request: InferRequest) -> bool:
    """Whether all outputs go to files; the front ends write memory of devices, for which they have a thread."""
    return request.use is not None and all(p.region.descriptor >= 0 for p in request.use.outputs.values())

"""Batches of unequal requests: ragged and padded inputs, inputs that the server makes of their shapes, and
outputs split for each request in its own size. Pure: arrays in, arrays out.

Source: ``BatchInput.Kind`` and ``BatchOutput.Kind`` of the model configuration, and the collector of the reference's
backends. An element count is that of a whole request, with all its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

import numpy as np

from naiad.config.assembly import BatchAssembly, PadSpec, UnpadSpec
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import (
    SMALL_BYTES,
    aligned,
    check_datatype,
    check_results,
    gather,
)
from naiad.execution.batching.reshape import as_model_sees
from naiad.request import Array, InferRequest
from naiad.scheduling.batcher.limited import input_bytes

Shapes = Sequence[tuple[int, ...]]


class JoinedInput(NamedTuple):
    """An input as the model gets it for a whole batch, in parts that lie one behind the other.

    ``shape`` is that of all parts together. BYTES are arrays, or packed. Padded rows are a single part.
    """

    parts: Sequence[Array | PaddedRows]
    shape: tuple[int, ...]

    def array(self) -> Array:
        """All parts in one aligned array."""
        if len(self.parts) > 1:
            whole: Array = np.concatenate(cast("Sequence[Array]", self.parts))
            return whole if whole.shape == self.shape else whole.reshape(self.shape)
        (part,) = self.parts
        return part.array() if isinstance(part, PaddedRows) else aligned(part).reshape(self.shape)


class PaddedRows:
    """Arrays of [rows, ...] one behind the other, their items made equally large, which are written only where they are
    wanted.

    Attributes:
        shape, nbytes: with the padding.
    """

    __slots__ = ("_arrays", "_value", "nbytes", "shape")

    def __init__(self, arrays: Sequence[Array], item: tuple[int, ...], value: Any) -> None:
        self._arrays = arrays
        self._value = value
        self.shape = (sum([array.shape[0] for array in arrays]), *item)
        self.nbytes = math.prod(self.shape) * arrays[0].dtype.itemsize

    def array(self) -> Array:
        """All rows in one new array."""
        whole: Array = np.empty(self.shape, self._arrays[0].dtype)
        self._fill(whole)
        return whole

    def read_into(self, target: memoryview) -> None:
        """Fill ``target``, which has ``nbytes``. Not for BYTES."""
        self._fill(np.frombuffer(target, np.uint8).view(self._arrays[0].dtype).reshape(self.shape))

    def read(self) -> Array:
        """The bytes of all rows, in one dimension. Not for BYTES."""
        # As bytes: bfloat16 is not a type that the buffer protocol knows.
        return self.array().reshape(-1).view(np.uint8)

    def _fill(self, whole: Array) -> None:
        whole[...] = self._value
        row = 0
        for array in self._arrays:
            end = row + array.shape[0]
            whole[(slice(row, end), *map(slice, array.shape[1:]))] = array
            row = end


def joined_inputs(batch: Batch, spec: ModelSpec) -> dict[str, JoinedInput]:
    """The inputs that the model gets for a batch. Shapes as ``as_backend_sees`` has them."""
    found, requests = spec.assembly, batch.requests
    if found is None:
        return {name: _rows_of([r.inputs[name] for r in requests], batch.rows) for name in requests[0].inputs}
    inputs = {}
    for name in requests[0].inputs:
        arrays = [request.inputs[name] for request in requests]
        if name in found.ragged:
            flat = [array.reshape(-1) for array in arrays]
            inputs[name] = JoinedInput(flat, (sum(map(len, flat)),))
        elif (pad := found.pads.get(name)) is not None:
            inputs[name] = padded(arrays, pad)
            if pad.mask:
                inputs[pad.mask] = _lone(mask(arrays, pad))
        else:
            rows = _rows_of(arrays, batch.rows)
            inputs[name] = JoinedInput(rows.parts, as_model_sees(rows.shape, spec.inputs[name], spec))
    for made in found.made:
        shapes = [request.inputs[made.source].shape for request in requests]
        inputs[made.name] = _lone(MAKERS[made.kind](shapes).astype(made.dtype.numpy))
    return inputs


def _rows_of(arrays: Sequence[Array], rows: int) -> JoinedInput:
    """Arrays that differ in their first dimension only."""
    shape = arrays[0].shape
    return JoinedInput(arrays, shape if len(arrays) == 1 else (rows, *shape[1:]))


def _lone(array: Array) -> JoinedInput:
    return JoinedInput((array,), array.shape)


def assemble(batch: Batch, spec: ModelSpec) -> dict[str, Array]:
    """The ``joined_inputs`` of a batch, each in one aligned array."""
    found = spec.assembly
    if found is None:
        return gather(batch, spec)
    # In a framework's worker: the server has gathered the batch already.
    if found.is_whole:
        return {name: aligned(array) for name, array in batch.requests[0].inputs.items()}
    return {name: joined.array() for name, joined in joined_inputs(batch, spec).items()}


def padded(arrays: Sequence[Array], pad: PadSpec) -> JoinedInput:
    """An input of arrays of [rows, ...] whose items are made equally large."""
    shapes = {array.shape[1:] for array in arrays}
    item = pad.shape(tuple(shapes))
    rows = PaddedRows(arrays, item, pad.value)
    return JoinedInput(arrays if shapes == {item} else (rows,), rows.shape)


def mask(arrays: Sequence[Array], pad: PadSpec) -> Array:
    """1 where ``padded`` has elements of the requests and 0 where it has its own: [rows, padded dims...]."""
    item = pad.shape([array.shape[1:] for array in arrays])
    sizes = [item[dim] for dim in pad.dims]
    dtype = np.dtype(bool) if pad.mask_dtype is None else pad.mask_dtype.numpy
    whole: Array = np.zeros((sum(array.shape[0] for array in arrays), *sizes), dtype)
    row = 0
    for array in arrays:
        end = row + array.shape[0]
        whole[(slice(row, end), *(slice(array.shape[1 + dim]) for dim in pad.dims))] = True
        row = end
    return whole


# The inputs that the server makes of the shapes of one input, which have the batch dimension.


def element_counts(shapes: Shapes) -> Array:
    """The elements of each request: int64 [requests]."""
    return np.array([math.prod(shape) for shape in shapes], np.int64)


def accumulated_counts(shapes: Shapes) -> Array:
    """The elements of each request and the requests before it: int64 [requests]."""
    return np.cumsum(element_counts(shapes))


def accumulated_counts_with_zero(shapes: Shapes) -> Array:
    """A zero, then the ``accumulated_counts``: int64 [requests + 1]."""
    return np.concatenate([np.zeros(1, np.int64), accumulated_counts(shapes)])


def max_count_as_shape(shapes: Shapes) -> Array:
    """Zeros, as many as the largest request has elements; only their number counts."""
    return np.zeros(max(math.prod(shape) for shape in shapes), np.int64)


def item_shapes(shapes: Shapes) -> Array:
    """The shape of each item without the batch dimension: int64 [rows, rank]."""
    rows = [shape[1:] for shape in shapes for _ in range(shape[0])]
    return np.array(rows, np.int64).reshape(len(rows), len(shapes[0]) - 1)


def item_shapes_flattened(shapes: Shapes) -> Array:
    """The ``item_shapes`` in one row: int64 [rows * rank]."""
    return item_shapes(shapes).reshape(-1)


MAKERS: Final[Mapping[str, Callable[[Shapes], Array]]] = {
    "BATCH_ELEMENT_COUNT": element_counts,
    "BATCH_ACCUMULATED_ELEMENT_COUNT": accumulated_counts,
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": accumulated_counts_with_zero,
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": max_count_as_shape,
    "BATCH_ITEM_SHAPE": item_shapes,
    "BATCH_ITEM_SHAPE_FLATTEN": item_shapes_flattened,
}


# Outputs


def take_apart(batch: Batch, results: Mapping[str, Array], spec: ModelSpec) -> None:
    """Give a batch its results: what each of its requests gets, in ``parts`` where they are several.

    Raises:
        BackendError: an output is missing, or has another type or size than its inputs imply.
    """
    found = spec.assembly
    if found is None:
        batch.results = check_results(batch, results, spec)
        return
    # The server takes the results apart.
    if found.is_whole:
        batch.results = {n: check_datatype(n, results[n], spec) for n in batch.outputs if n in results}
        return
    by_rows = [n for n in batch.outputs if n not in found.scattered]
    checked = check_results(batch, results, spec, by_rows)
    parts: list[dict[str, Array]] = [{} for _ in batch.requests]
    for name in batch.outputs:
        if name in found.scattered:
            own = _scattered(name, found.scattered[name], batch, results, spec)
        elif name in checked:
            own = _rows(name, checked[name], found.unpads.get(name), batch, spec)
        else:
            # It depends on inputs that were not given.
            continue
        for part, array in zip(parts, own, strict=True):
            part[name] = array
    # The results of a single request are its own, and take the shorter way through the responder.
    batch.results, batch.parts = (parts[0], ()) if len(parts) == 1 else (checked, parts)


def _rows(name: str, array: Array, unpad: UnpadSpec | None, batch: Batch, spec: ModelSpec) -> list[Array]:
    row = 0
    found = []
    for request in batch.requests:
        end = row + request.options.rows
        found.append(array[row:end])
        row = end
    if unpad is None or spec.assembly is None or unpad.source not in batch.requests[0].inputs:
        return found
    shapes = [request.inputs[unpad.source].shape for request in batch.requests]
    for dim, source in zip(unpad.dims, spec.assembly.pads[unpad.source].dims, strict=True):
        front = (slice(None),) * (1 + dim)
        sizes = unpad.sizes([shape[1 + source] for shape in shapes])
        room = array.shape[1 + dim] if 1 + dim < array.ndim else -1
        if max(sizes) > room:
            worst = sizes.index(max(sizes))
            raise BackendError(
                f"model '{spec.name}' returned output '{name}' with shape {list(array.shape)}, and a request has "
                f"{sizes[worst]} in dim {dim} of it, by the shape {list(shapes[worst])} of its input '{unpad.source}'"
            )
        found = [own[(*front, slice(size))] for own, size in zip(found, sizes, strict=True)]
    return found


def _scattered(name: str, source: str, batch: Batch, results: Mapping[str, Array], spec: ModelSpec) -> list[Array]:
    """Elements one behind the other, split by the shapes of an input."""
    if name not in results:
        raise BackendError(f"model '{spec.name}' returned no output '{name}', only {sorted(results)}")
    array = check_datatype(name, results[name], spec)
    shapes = [request.inputs[source].shape for request in batch.requests]
    ends = list(accumulate(math.prod(shape) for shape in shapes))
    if array.size != ends[-1]:
        raise BackendError(
            f"model '{spec.name}' returned output '{name}' with {array.size} elements, and is to be split by the "
            f"shapes of input '{source}', which has {ends[-1]} in this batch"
        )
    flat = array.reshape(-1)
    return [flat[end - math.prod(shape) : end].reshape(shape) for end, shape in zip(ends, shapes, strict=True)]


# Sizes


def assembled_bytes(requests: Sequence[InferRequest], found: BatchAssembly | None) -> int:
    """The bytes of a batch's inputs with their padding."""
    size = sum([input_bytes(request) for request in requests])
    for name, pad in () if found is None else found.pads.items():
        size += padding_bytes([request.inputs[name] for request in requests if name in request.inputs], pad)
    return size


def padding_bytes(arrays: Sequence[Array], pad: PadSpec) -> int:
    """The bytes that padding adds to these inputs."""
    if not arrays:
        return 0
    item = math.prod(pad.shape([array.shape[1:] for array in arrays]))
    rows = sum([array.shape[0] for array in arrays])
    own = sum([array.nbytes for array in arrays])
    return int(rows * item * arrays[0].dtype.itemsize - own)


def is_small_assembly(batch: Batch, spec: ModelSpec) -> bool:
    """Whether putting the batch together costs less than waking a thread for it does."""
    return assembled_bytes(batch.requests, spec.assembly) <= SMALL_BYTES

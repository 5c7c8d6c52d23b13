"""Gathers the inputs of requests into one buffer per tensor, and checks the outputs of the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from naiad.config.spec import ModelSpec, TensorSpec
from naiad.errors import BackendError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.reshape import as_clients_get, as_model_sees
from naiad.request import Array
from naiad.tensor.dtypes import BY_NUMPY

SMALL_BYTES: Final = 1 << 16
"""The most bytes of a batch that is gathered on the event loop."""


def is_small(batch: Batch) -> bool:
    """Whether gathering the batch costs less than waking a thread for it does."""
    first = batch.requests[0]
    if first.options.resident is not None:
        # Tensors on a device are put together there, by the instance.
        return False
    # The first request stands for all: requests of a batch have equal shapes per row.
    size = sum([array.nbytes for array in first.inputs.values()])
    return size * batch.rows <= SMALL_BYTES * first.options.rows


def gather(batch: Batch, spec: ModelSpec, names: Collection[str] | None = None) -> dict[str, Array]:
    """The inputs of all requests of a batch, each tensor in one aligned array, reshaped as the configuration says.

    ``names``: the inputs to gather; None for all.
    """
    requests = batch.requests
    wanted = requests[0].inputs if names is None else names
    if len(requests) == 1:
        given = requests[0].inputs
        inputs = {name: aligned(given[name]) for name in wanted}
    else:
        inputs = {name: _joined([r.inputs[name] for r in requests]) for name in wanted}
    return reshaped(inputs, spec)


def reshaped(inputs: dict[str, Array], spec: ModelSpec) -> dict[str, Array]:
    """The inputs in the shapes that the model sees."""
    for name, array in inputs.items():
        tensor = spec.inputs[name]
        if tensor.reshape is not None:
            inputs[name] = array.reshape(as_model_sees(array.shape, tensor, spec))
    return inputs


def _joined(arrays: list[Array]) -> Array:
    """Arrays that differ in their first dimension only, one behind the other in one new array."""
    first = arrays[0]
    if not 0 < first.nbytes * len(arrays) <= SMALL_BYTES or first.dtype.kind not in "biuf":
        return np.concatenate(arrays)
    try:
        # For many small tensors a third of the cost of concatenate.
        memory = bytearray().join(arrays)  # type: ignore[arg-type]
    except TypeError:
        # One is not contiguous, as a model before this one may have made it.
        return np.concatenate(arrays)
    row_bytes = first.nbytes // first.shape[0]
    return np.ndarray((len(memory) // row_bytes, *first.shape[1:]), first.dtype, memory)


def aligned(array: Array) -> Array:
    """The array at an address that is a multiple of its element size, a copy if need be."""
    # A tensor lies where its header ended, at any byte; some kernels want it aligned to its element size.
    try:
        return array if array.flags.aligned else array.copy()
    except AttributeError:
        # Packed strings have no elements that could be aligned.
        return array


def check_results(
    batch: Batch, results: Mapping[str, Array], spec: ModelSpec, names: Sequence[str] | None = None
) -> dict[str, Array]:
    """The checked outputs of a model: every wanted one, of the configured datatype, with a row per item.

    ``names``: the outputs to check; None for all that the batch wants.

    Raises:
        BackendError: names the output, what it is and what it should be.
    """
    checked: dict[str, Array] = {}
    for name in batch.outputs if names is None else names:
        tensor = spec.outputs[name]
        array = results.get(name)
        if array is None and spec.has_optional_inputs:
            # It depends on inputs that were not given: the response does not have it.
            continue
        if array is None:
            raise BackendError(f"model '{spec.name}' returned no output '{name}', only {sorted(results)}")
        check_datatype(name, array, spec)
        if spec.max_batch_size and (array.ndim == 0 or array.shape[0] != batch.rows):
            raise BackendError(
                f"model '{spec.name}' returned output '{name}' with shape {list(array.shape)} for a batch of "
                f"{batch.rows}: its first dimension must be the batch size"
            )
        checked[name] = _output_reshape(array, tensor, spec) if tensor.reshape is not None else array
    return checked


def check_datatype(name: str, array: Array, spec: ModelSpec) -> Array:
    """The array of an output, which must have the configured datatype.

    Raises:
        BackendError: it has another one.
    """
    dtype = spec.outputs[name].dtype
    if array.dtype != dtype.numpy:
        found = BY_NUMPY.get(array.dtype)
        raise BackendError(
            f"model '{spec.name}' returned output '{name}' as {found.wire if found else array.dtype}, "
            f"but its configuration says {dtype.wire}"
        )
    return array


def _output_reshape(array: Array, tensor: TensorSpec, spec: ModelSpec) -> Array:
    target = as_clients_get(array.shape, tensor, spec)
    try:
        return array.reshape(target)
    except ValueError:
        raise BackendError(
            f"model '{spec.name}' returned output '{tensor.name}' with shape {list(array.shape)}, which does not "
            f"reshape to {list(target)}"
        ) from None

"""Batches of ensembles whose tensors may stay on a device between the steps, in the thread of an instance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from naiad.backend_api.backend import Instance
from naiad.config.spec import ModelSpec
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import aligned, reshaped
from naiad.request import Array
from naiad.tensor.device_tensor import DeviceTensor, transfers


def gather_on_device(instance: Instance, batch: Batch, spec: ModelSpec) -> dict[str, Array]:
    """The inputs of a batch as ``gather`` gives them, where those on the instance's device stay there."""
    names = batch.requests[0].inputs
    return reshaped({name: _joined(instance, [r.inputs[name] for r in batch.requests]) for name in names}, spec)


def execute_on_device(instance: Instance, inputs: Mapping[str, Array], batch: Batch) -> Mapping[str, Array]:
    """The outputs of a batch; those stay on the device that no request needs elsewhere."""
    if instance.device is None:
        return instance.execute(inputs, batch.outputs)
    return instance.execute_on_device(inputs, batch.outputs, _resident(instance, batch))


def _joined(instance: Instance, tensors: list[Array]) -> Array:
    is_single = len(tensors) == 1
    if (is_single or instance.cuts_rows) and all(_is_there(instance, tensor) for tensor in tensors):
        for _ in tensors:
            transfers.count_resident()
        return tensors[0] if is_single else instance.join(tensors)  # type: ignore[arg-type, return-value]
    # To numpy a tensor on a device is an array.
    return aligned(np.asarray(tensors[0])) if is_single else np.concatenate(tensors)


def _is_there(instance: Instance, tensor: object) -> bool:
    # An instance that came later may be elsewhere than the ones that the ensemble has seen.
    return isinstance(tensor, DeviceTensor) and instance.device is not None and tensor.device == instance.device


def _resident(instance: Instance, batch: Batch) -> frozenset[str]:
    """The outputs that may stay for all requests of a batch."""
    found = batch.requests[0].options.resident or frozenset()
    if len(batch.requests) == 1:
        return found
    if not instance.cuts_rows:
        return frozenset()
    for request in batch.requests:
        found &= request.options.resident or frozenset()
    return found

"""Tensors on a device of Python models in threads: to ``pb_utils`` and back by DLPack, past the processor's memory.

Inputs are shared. Outputs are copied on their device, since the model may use its own memory again; PyTorch does that,
for tensors of other frameworks, too.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

from naiad.request import Array
from naiad.tensor.device_tensor import CUDA, Device, DeviceTensor, transfers
from naiad.worker.api import dlpack
from naiad.worker.api.tensor import Tensor


def input_tensor(name: str, tensor: DeviceTensor, device: Device | None) -> Tensor | None:
    """An input where it is; None for one that lies on another device than the instance."""
    if tensor.device != device:
        return None
    transfers.count_resident()
    return Tensor.from_dlpack(name, tensor)


def resident_output(tensor: Tensor, dtype: np.dtype[Any], device: Device) -> DeviceTensor | None:
    """A complete copy of an output on its device; None for one that lies elsewhere, or that needs PyTorch, which the
    model has not imported."""
    torch = sys.modules.get("torch")
    if torch is None or Device(*tensor.__dlpack_device__()) != device:
        return None
    if dlpack.is_capsule(tensor._foreign):
        # A capsule can be taken once, and a model may give one tensor to several requests.
        tensor._foreign = torch.utils.dlpack.from_dlpack(tensor._foreign)
    # From the capsule: the model's work is on the stream of this thread, for which it is waited below.
    source = torch.utils.dlpack.from_dlpack(tensor.to_dlpack()).detach()
    kept = source.clone(memory_format=torch.contiguous_format)
    if device.kind == CUDA:
        torch.cuda.current_stream(kept.device).synchronize()
    return DeviceTensor(kept, dtype, tuple(kept.shape), partial(_fetched, dtype))


def _fetched(dtype: np.dtype[Any], source: Any) -> Array:
    import torch

    # As bytes: numpy has no datatype for some of torch's.
    content = source.reshape(-1).view(torch.uint8).cpu().numpy()
    array: Array = content.view(dtype).reshape(tuple(source.shape))
    return array

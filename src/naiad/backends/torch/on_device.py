"""Tensors that stay on a device between two models: into torch and out of it by DLPack, without a copy."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from naiad.backends.torch.tensors import to_array, to_tensor
from naiad.tensor.device_tensor import Device, DeviceTensor

Array = np.ndarray[Any, Any]


def dlpack_device(torch: Any, device: Any) -> Device:
    """A device of torch, such as ``cuda:0``, as DLPack names it."""
    kind, number = torch.empty(0, device=device).__dlpack_device__()
    return Device(int(kind), int(number))


def to_device(torch: Any, array: Array | DeviceTensor, copy: bool, device: str) -> Any:
    """The torch tensor of an input on ``device``.

    It shares the memory of a ``DeviceTensor``, so ``copy`` must be set for a model that may write to its inputs.
    """
    if isinstance(array, DeviceTensor):
        tensor = _taken(torch, array)
        return tensor.clone() if copy else tensor
    return to_tensor(torch, array, copy).to(device)


def resident_tensor(torch: Any, tensor: Any, copy: bool) -> DeviceTensor:
    """An output where it is; ``copy`` must be set for memory that a later run may change."""
    # DLPack refuses tensors that require gradients.
    tensor = tensor.detach()
    tensor = tensor.clone(memory_format=torch.contiguous_format) if copy else tensor.contiguous()
    dtype = to_array(torch, torch.empty(0, dtype=tensor.dtype), False).dtype
    return DeviceTensor(tensor, dtype, tuple(tensor.shape), partial(to_array, torch, copy=False))


def joined(torch: Any, tensors: Sequence[DeviceTensor]) -> DeviceTensor:
    """Tensors one behind the other, in a new one on their device."""
    return resident_tensor(torch, torch.cat([_taken(torch, tensor) for tensor in tensors]), False)


def synchronise(torch: Any, device: str | None) -> None:
    """Wait until the outputs of this thread's runs are complete: another framework's stream does not wait for them."""
    if device is not None and device.startswith("cuda"):
        torch.cuda.current_stream(device).synchronize()


def release_gpu_memory() -> None:
    """Give the memory of GPUs that no tensor has back to the driver; torch keeps it for later tensors otherwise."""
    import torch

    if torch.cuda.is_initialized():
        # The memory of modules in reference cycles is taken until they are collected.
        gc.collect()
        # Fails where the process has lost its GPU, and then there is nothing to give back.
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()


def _taken(torch: Any, tensor: DeviceTensor) -> Any:
    # From the capsule: a ``DeviceTensor`` is complete, so no stream has to wait for another.
    return torch.utils.dlpack.from_dlpack(tensor.__dlpack__())

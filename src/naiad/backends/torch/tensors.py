"""Conversion between numpy and torch, without a copy where that is safe."""

from __future__ import annotations

from typing import Any

import numpy as np

from naiad.backends.shared.writable import CHEAP_COPY_BYTES, WritableView
from naiad.tensor.dtypes import BF16

Array = np.ndarray[Any, Any]

# Of all datatypes this is the kind of BF16 alone.
_BFLOAT16_KIND = "V"


def to_tensor(torch: Any, array: Array, copy: bool) -> Any:
    """A tensor with the values of ``array``.

    It shares the memory of a big array even when that is read-only, so ``copy`` must be set for a model that may write
    to its inputs.
    """
    if array.dtype.kind == _BFLOAT16_KIND:
        # torch does not know the type of ``ml_dtypes``, so the bits travel as integers.
        return to_tensor(torch, array.view(np.int16), copy).view(torch.bfloat16)
    flags = array.flags
    if copy or not flags.c_contiguous or (not flags.writeable and array.nbytes <= CHEAP_COPY_BYTES):
        array = array.copy()
    elif not flags.writeable:
        array = np.asarray(WritableView(array))
    return torch.from_numpy(array)


def to_array(torch: Any, tensor: Any, copy: bool) -> Array:
    """The values of ``tensor`` as an array, sharing its memory unless ``copy`` is set or it lies on a GPU."""
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    elif copy:
        tensor = tensor.clone()
    if tensor.requires_grad:
        # numpy refuses tensors that require gradients.
        tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        # numpy has no such type, so the bits travel as integers.
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(BF16.numpy)
    array: Array = tensor.numpy()
    return array

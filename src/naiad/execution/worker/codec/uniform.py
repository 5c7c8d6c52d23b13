"""Batches of requests that differ in their tensors' elements alone, as ``EXECUTE_UNIFORM`` frames.

They are described once, and all elements are put together in one step.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from naiad.config.spec import ModelSpec
from naiad.request import InferRequest
from naiad.worker.ipc.frames import ALIGNMENT, EXECUTE_UNIFORM, FRAME, SEGMENT_BYTES, UNIFORM
from naiad.worker.ipc.schemas import PADDING, aligned

_BEGIN: Final = aligned(UNIFORM.size)
_HEAD: Final = struct.Struct(f"{FRAME.format}{UNIFORM.format[1:]}{_BEGIN - UNIFORM.size}x")
"""All that comes before the data of requests without ids."""


class UniformSchema:
    """A form whose requests can travel like this.

    Args:
        number: of the form.
        tensors: of each input, its name and its size in bytes.
    """

    __slots__ = ("_number", "_only", "_stride", "_tensors")

    def __init__(self, number: int, tensors: Sequence[tuple[str, int]]) -> None:
        self._number = number
        self._tensors = [(name, PADDING[-size % ALIGNMENT]) for name, size in tensors]
        self._stride = sum(aligned(size) for _, size in tensors)
        # One tensor without room behind it needs no loop over the tensors.
        self._only = tensors[0][0] if len(tensors) == 1 and not tensors[0][1] % ALIGNMENT else None

    def frame(self, batch: int, first: int, requests: Sequence[InferRequest]) -> bytes | None:
        """The frame of a batch whose requests are numbered from ``first`` on.

        None when it cannot be written like this: an id has a zero byte, or an array is not one row-major block.
        """
        count = len(requests)
        # Many batches have one request, and few requests an id.
        said = b"" if count == 1 and not requests[0].id else said_ids(requests)
        if said is None:
            return None
        data_bytes = count * self._stride
        if said:
            begin = aligned(UNIFORM.size + len(said))
            pieces: list[Any] = [
                FRAME.pack(EXECUTE_UNIFORM, begin + data_bytes, batch),
                UNIFORM.pack(first, count, self._number, len(said), 0),
                said,
                PADDING[begin - UNIFORM.size - len(said)],
            ]
        else:
            begin = _BEGIN
            pieces = [_HEAD.pack(EXECUTE_UNIFORM, begin + data_bytes, batch, first, count, self._number, 0, 0)]
        if (name := self._only) is None:
            pieces += [p for r in requests for name, gap in self._tensors for p in (r.inputs[name], gap)]
        elif count == 1:
            pieces.append(requests[0].inputs[name])
        else:
            pieces += [request.inputs[name] for request in requests]
        return joined(pieces, FRAME.size + begin + data_bytes)


def said_ids(requests: Sequence[InferRequest]) -> bytes | None:
    """The ids of requests in one, b"" when none has any; None when one has a zero byte, which stands between them."""
    ids = [request.id for request in requests]
    if not any(ids):
        return b""
    said = "\0".join(ids).encode()
    return said if said.count(0) == len(ids) - 1 else None


def joined(pieces: Sequence[Any], size: int) -> bytes | None:
    """A frame of ``size`` bytes put together; None when an array among its pieces is not one row-major block."""
    try:
        whole = b"".join(pieces)
    except (BufferError, TypeError, ValueError):
        return None
    return whole if len(whole) == size else None


def uniform_schema(number: int, spec: ModelSpec, request: InferRequest) -> UniformSchema | None:
    """The form of that number, which is the request's; None when its requests cannot travel like this."""
    if request.options.regions is not None:
        return None
    tensors = []
    for name, array in request.inputs.items():
        dtype = spec.inputs[name].dtype
        # BYTES vary in size. BF16 is no type that the buffer protocol knows.
        if dtype.is_bytes or dtype.wire == "BF16" or array.nbytes >= SEGMENT_BYTES:
            return None
        tensors.append((name, array.nbytes))
    return UniformSchema(number, tensors) if tensors else None

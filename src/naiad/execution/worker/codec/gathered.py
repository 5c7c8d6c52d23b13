"""A whole batch as one request of ``naiad.worker.ipc.frames``: each input in one tensor, gathered while it is written.

So a batch of sixty requests costs a framework's process as much as a batch of one.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from naiad.config.spec import ModelSpec
from naiad.execution.batching.batch import Batch
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.writer import BatchWriter
from naiad.request import Array
from naiad.shared_memory.tensor_ref import RegionTensor
from naiad.tensor.packed_bytes import serialised
from naiad.worker.ipc.frames import COUNT, EXECUTE, REQUEST

# Kinds of numpy types whose arrays export their memory as it is.
_PLAIN: Final = "biuf"


class _Tensor(NamedTuple):
    """One input: its parts in the order of their rows, and what they are together."""

    parts: list[Array]
    shape: tuple[int, ...]
    is_bytes: bool


def write_gathered(
    writer: BatchWriter, spec: ModelSpec, number: int, batch: Batch, frames: list[OutgoingFrame]
) -> None:
    """Add the frames of a batch: what the worker does not know yet, then the batch itself, as one request.

    Raises:
        OSError, MemoryError: there is no shared memory for it. What was added is to be sent all the same.
    """
    # Before the frame's parts, which may use any schema that is known then.
    writer.make_room(frames)
    tensors = {name: _tensor(name, batch, spec) for name in batch.requests[0].inputs}
    inputs = [[name, spec.inputs[name].dtype.wire, t.shape] for name, t in tensors.items()]
    schema = writer.schema(orjson.dumps({"inputs": inputs, "outputs": batch.outputs}), frames)
    body = writer.body(frames, COUNT.pack(1, 0), REQUEST.pack(number, schema, 0, 0))
    try:
        for tensor in tensors.values():
            body.add_joined(*_raw(tensor))
        frames.append((body.frame(EXECUTE, number), -1))
    except BaseException:
        # The worker releases only segments that a frame has named.
        writer.pool.release(body.taken)
        raise


def _tensor(name: str, batch: Batch, spec: ModelSpec) -> _Tensor:
    parts = [request.inputs[name] for request in batch.requests]
    shape = parts[0].shape
    return _Tensor(parts, shape if len(parts) == 1 else (batch.rows, *shape[1:]), spec.inputs[name].dtype.is_bytes)


def _raw(tensor: _Tensor) -> tuple[list[Any], int]:
    """The bytes of a tensor in pieces, and how many they are."""
    raw = [serialised(part) if tensor.is_bytes else _memory(part) for part in tensor.parts]
    return raw, sum([len(r) if isinstance(r, (bytes, bytearray)) else r.nbytes for r in raw])


def _memory(array: Array) -> Any:
    """An object that exports the bytes of an array and can be joined; a tensor in a region is read only then."""
    if isinstance(array, RegionTensor):
        return array
    if array.flags.c_contiguous and array.dtype.kind in _PLAIN:
        return array
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else b""

"""A whole batch as one request of ``naiad.worker.ipc.frames``: each input in one tensor, gathered while it is written,
or in the parts in which its large tensors came.

So a batch of sixty requests costs a framework's process as much as a batch of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson

from naiad.config.spec import ModelSpec
from naiad.execution.batching.ragged import JoinedInput, PaddedRows
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.writer import BatchWriter
from naiad.request import Array
from naiad.tensor.bytes_codec import Raw
from naiad.tensor.packed_bytes import serialised
from naiad.worker.ipc.frame_body import FrameBody
from naiad.worker.ipc.frames import COUNT, EXECUTE, REQUEST, SEGMENT_BYTES

# Kinds of numpy types whose arrays export their memory as it is.
_PLAIN: Final = "biuf"


def write_gathered(
    writer: BatchWriter,
    spec: ModelSpec,
    number: int,
    inputs: Mapping[str, JoinedInput],
    outputs: Sequence[str],
    frames: list[OutgoingFrame],
) -> None:
    """Add the frames of a batch: what the worker does not know yet, then the batch itself, as one request.

    ``spec`` is the model as its backend sees it; ``outputs`` are the wanted ones.

    Raises:
        OSError, MemoryError: there is no shared memory for it. What was added is to be sent all the same.
    """
    # Before the frame's parts, which may use any schema that is known then.
    writer.make_room(frames)
    described = [[name, spec.inputs[name].dtype.wire, joined.shape] for name, joined in inputs.items()]
    schema = writer.schema(orjson.dumps({"inputs": described, "outputs": outputs}), frames)
    body = writer.body(frames, COUNT.pack(1, 0), REQUEST.pack(number, schema, 0, 0))
    try:
        for name, joined in inputs.items():
            to_raw = _strings if spec.inputs[name].dtype.is_bytes else _memory
            parts = [to_raw(part) for part in joined.parts]
            sizes = [len(p) if isinstance(p, (bytes, bytearray)) else p.nbytes for p in parts]
            # Large inputs stay where they are, and the process puts them together, which would hold up the event loop.
            if min(sizes, default=0) >= SEGMENT_BYTES and any(map(writer.can_lend, parts)):
                _add_apart(writer, body, parts, sizes, frames)
            else:
                body.add_joined(parts, sum(sizes))
        frames.append((body.frame(EXECUTE, number), -1))
    except BaseException:
        # The worker releases only what a frame has named.
        writer.release(body.taken)
        raise


def _add_apart(
    writer: BatchWriter, body: FrameBody, parts: Sequence[Any], sizes: Sequence[int], frames: list[OutgoingFrame]
) -> None:
    """Add an input in the parts in which it came."""
    for part, size in zip(parts, sizes, strict=True):
        if not writer.lend(part, size, body, frames):
            body.add_joined([part], size)
    if len(parts) > 1:
        body.add_apart(len(parts), sum(sizes))


def _strings(part: Array | PaddedRows) -> Raw:
    return serialised(part.array() if isinstance(part, PaddedRows) else part)


def _memory(array: Array | PaddedRows) -> Any:
    """An object that exports the bytes of an array and can be joined; regions and padded rows are read only then."""
    # A ``RegionTensor`` or ``PaddedRows``. Asked in this way, since most are arrays.
    if not isinstance(array, np.ndarray):
        return array
    if array.flags.c_contiguous and array.dtype.kind in _PLAIN:
        return array
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else b""

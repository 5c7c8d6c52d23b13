"""Batches of requests of one schema as ``EXECUTE_UNIFORM`` frames: described once, their elements joined in one step.

Requests of sequences also differ in their sequences, and requests whose tensors lie in shared memory of clients in
their places: a column of the frame holds these.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from naiad.config.spec import ModelSpec
from naiad.execution.batching.step_row import SequenceRow, StepFacts
from naiad.execution.worker.codec.client_memory import OutgoingFrame, WorkerRegions
from naiad.request import InferRequest
from naiad.shared_memory.tensor_ref import RegionTensor
from naiad.worker.ipc.frame_body import PADDING, aligned, places_struct
from naiad.worker.ipc.frames import (
    ALIGNMENT,
    COLUMN_PLACES,
    COLUMN_STEPS,
    EXECUTE_UNIFORM,
    FRAME,
    SEGMENT_BYTES,
    UNIFORM,
)

_BEGIN: Final = aligned(UNIFORM.size)
_HEAD: Final = struct.Struct(f"{FRAME.format}{UNIFORM.format[1:]}{_BEGIN - UNIFORM.size}x")
"""All that comes before the data of requests without ids and without a column."""
Tensors = Sequence[tuple[str, int]]
"""Name and size in bytes of inputs."""


class UniformSchema:
    """Requests of one schema whose small tensors of fixed size travel in the frame.

    Args:
        number: of the schema.
        tensors: all inputs, in their order.
    """

    __slots__ = ("_number", "_only", "_stride", "_tensors")

    def __init__(self, number: int, tensors: Tensors) -> None:
        self._number = number
        self._tensors = _with_gaps(tensors)
        self._stride = sum(aligned(size) for _, size in tensors)
        # A single tensor without padding needs no loop over the tensors.
        self._only = tensors[0][0] if len(tensors) == 1 and not tensors[0][1] % ALIGNMENT else None

    def frame(
        self, batch: int, first: int, requests: Sequence[InferRequest], frames: list[OutgoingFrame]
    ) -> bytes | None:
        """The frame of a batch whose requests are numbered from ``first`` on.

        None when it cannot be written like this: an id has a zero byte, or an array is not one row-major block.
        """
        count = len(requests)
        # Many batches have one request, and few requests have an id.
        ids = b"" if count == 1 and not requests[0].id else _joined_ids(requests)
        if ids is None:
            return None
        data_bytes = count * self._stride
        if ids:
            begin, parts = _head(batch, first, count, self._number, 0, b"", ids, data_bytes)
        else:
            begin = _BEGIN
            parts = [_HEAD.pack(EXECUTE_UNIFORM, begin + data_bytes, batch, first, count, self._number, 0, 0)]
        if (name := self._only) is None:
            parts += [p for r in requests for name, gap in self._tensors for p in (r.inputs[name], gap)]
        elif count == 1:
            parts.append(requests[0].inputs[name])
        else:
            parts += [request.inputs[name] for request in requests]
        return _joined(parts, FRAME.size + begin + data_bytes)


class UniformStepSchema:
    """Requests of any sequences, whose column has the sequence and the flags of each.

    Args:
        number: of the schema.
        before, after: the inputs before the controls, and those behind them.
        controls: bytes of the controls together.
    """

    __slots__ = ("_after", "_before", "_number", "_stride")

    def __init__(self, number: int, before: Tensors, controls: int, after: Tensors) -> None:
        self._number = number
        self._before, self._after = _with_gaps(before), _with_gaps(after)
        self._stride = controls + sum(aligned(size) for _, size in (*before, *after))

    def frame(
        self, batch: int, first: int, requests: Sequence[InferRequest], frames: list[OutgoingFrame]
    ) -> bytes | None:
        """The frame of a batch, all of whose requests have facts; None as ``UniformSchema.frame``."""
        ids = _joined_ids(requests)
        if ids is None:
            return None
        rows: Sequence[Any] = requests
        data_bytes = len(rows) * self._stride
        column = b"".join([row.facts.said for row in rows])
        begin, parts = _head(batch, first, len(rows), self._number, COLUMN_STEPS, column, ids, data_bytes)
        for row in rows:
            inputs = row.inputs
            for name, gap in self._before:
                parts += (inputs[name], gap)
            parts.append(row.facts.controls)
            for name, gap in self._after:
                parts += (inputs[name], gap)
        return _joined(parts, FRAME.size + begin + data_bytes)


class UniformShmSchema:
    """Requests whose tensors all lie in shared memory of clients; their column has the places.

    Args:
        number: of the schema.
        regions: the regions that the worker has been given.
        count: how many inputs and outputs there are.
    """

    __slots__ = ("_count", "_number", "_one", "_places", "_regions")

    def __init__(self, number: int, regions: WorkerRegions, count: int) -> None:
        self._number = number
        self._regions = regions
        self._count = count
        self._places = places_struct(count)
        # Most batches have one request, without an id.
        described = UNIFORM.format[1:] + self._places.format[1:]
        gap = -(UNIFORM.size + self._places.size) % ALIGNMENT
        self._one = struct.Struct(f"{FRAME.format}{described}{gap}x")

    def frame(
        self, batch: int, first: int, requests: Sequence[InferRequest], frames: list[OutgoingFrame]
    ) -> bytes | None:
        """The frame of a batch; regions that are new to the worker are added to ``frames``.

        None as ``UniformSchema.frame``, and when a tensor lies elsewhere.

        Raises:
            OSError: too many files are open.
        """
        found = [self._numbers(request, frames) for request in requests]
        ids = _joined_ids(requests)
        if ids is None or None in found:
            return None
        if not ids and len(found) == 1 and found[0] is not None:
            size, number = self._one.size - FRAME.size, self._number
            return self._one.pack(EXECUTE_UNIFORM, size, batch, first, 1, number, 0, COLUMN_PLACES, *found[0])
        column = b"".join([self._places.pack(*numbers) for numbers in found if numbers is not None])
        begin, parts = _head(batch, first, len(requests), self._number, COLUMN_PLACES, column, ids, 0)
        return _joined(parts, FRAME.size + begin)

    def _numbers(self, request: InferRequest, frames: list[OutgoingFrame]) -> list[int] | None:
        """All places of a request in one list."""
        use = request.use
        if use is None:
            return None
        numbers: list[int] = []
        for tensor in request.inputs.values():
            if not isinstance(tensor, RegionTensor):
                return None
            numbers += self._regions.find(tensor.part, frames)
        for part in use.outputs.values():
            numbers += self._regions.find(part, frames)
        return numbers if len(numbers) == 4 * self._count else None


Uniform = UniformSchema | UniformStepSchema | UniformShmSchema


def uniform_schema(number: int, spec: ModelSpec, regions: WorkerRegions, request: InferRequest) -> Uniform | None:
    """The schema of frames for requests with the options of ``request``; None when each has to be described by itself.

    ``number`` is that of their schema in the worker.
    """
    if request.options.regions is not None:
        if request.use is None or spec.is_cached:
            return None
        return UniformShmSchema(number, regions, len(request.inputs) + len(request.use.outputs))
    tensors = _fixed_sizes(spec, request)
    return UniformSchema(number, tensors) if tensors else None


def step_schema(number: int, spec: ModelSpec, request: InferRequest, facts: StepFacts) -> Uniform | None:
    """The schema of frames for steps of one kind; as ``uniform_schema``."""
    tensors = _fixed_sizes(spec, request)
    if not tensors:
        return None
    controls = () if spec.sequence is None else spec.sequence.controls
    names = frozenset(control.tensor.name for control in controls)
    places = [index for index, (name, _) in enumerate(tensors) if name in names]
    begin, end = (places[0], places[-1] + 1) if places else (len(tensors), len(tensors))
    # The facts hold the controls in one piece, so these must be next to each other.
    if end - begin != len(places):
        return None
    return UniformStepSchema(number, tensors[:begin], len(facts.controls), tensors[end:])


def step_facts(requests: Sequence[InferRequest]) -> StepFacts | None:
    """The facts of one of the steps, if all requests are steps of one kind."""
    kind = facts = None
    for request in requests:
        # The requests of a warm-up are no steps.
        facts = request.facts if isinstance(request, SequenceRow) else None
        if facts is None or (kind is not None and facts.kind is not kind):
            return None
        kind = facts.kind
    return facts


def _fixed_sizes(spec: ModelSpec, request: InferRequest) -> list[tuple[str, int]]:
    """Names and sizes of the inputs; none if one of them varies in size, or is too large for a frame."""
    tensors = []
    for name, array in request.inputs.items():
        dtype = spec.inputs[name].dtype
        # BYTES vary in size. BF16 is no type that the buffer protocol knows.
        if dtype.is_bytes or dtype.wire == "BF16" or array.nbytes >= SEGMENT_BYTES:
            return []
        tensors.append((name, array.nbytes))
    return tensors


def _with_gaps(tensors: Tensors) -> list[tuple[str, bytes]]:
    return [(name, PADDING[-size % ALIGNMENT]) for name, size in tensors]


def _joined_ids(requests: Sequence[InferRequest]) -> bytes | None:
    """The ids of requests in one, b"" when none has any; None when one has a zero byte, which stands between them."""
    ids = [request.id for request in requests]
    if not any(ids):
        return b""
    joined = "\0".join(ids).encode()
    return joined if joined.count(0) == len(ids) - 1 else None


def _head(
    batch: int, first: int, count: int, number: int, kind: int, column: bytes, ids: bytes, data_bytes: int
) -> tuple[int, list[Any]]:
    """The offset of the data in a frame's payload, and the parts of the frame before the data."""
    size = UNIFORM.size + len(column) + len(ids)
    begin = aligned(size)
    head = FRAME.pack(EXECUTE_UNIFORM, begin + data_bytes, batch)
    return begin, [head, UNIFORM.pack(first, count, number, len(ids), kind), column, ids, PADDING[begin - size]]


def _joined(parts: Sequence[Any], size: int) -> bytes | None:
    """A frame of ``size`` bytes put together; None when an array among its parts is not one row-major block."""
    try:
        # ``join`` copies each array once, and raises for one that is not contiguous.
        whole = b"".join(parts)
    except (BufferError, TypeError, ValueError):
        return None
    # One test of the sum in place of one for each tensor.
    return whole if len(whole) == size else None

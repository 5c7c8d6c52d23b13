"""Batches for a worker, written as frames of ``naiad.worker.ipc.frames``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import orjson

from naiad.config.spec import ModelSpec
from naiad.execution.batching.reshape import as_model_sees
from naiad.execution.batching.step_row import StepFacts
from naiad.execution.worker.codec.client_memory import OutgoingFrame, WorkerRegions
from naiad.execution.worker.codec.uniform import Uniform, step_facts, step_schema, uniform_schema
from naiad.request import Array, InferRequest, RequestOptions, TracedOptions
from naiad.shared_memory.region import RegionPart
from naiad.shared_memory.tensor_ref import RegionTensor
from naiad.tensor.packed_bytes import serialised
from naiad.worker.ipc.arena import Arena
from naiad.worker.ipc.frame_body import FrameBody
from naiad.worker.ipc.frames import (
    ARENA,
    COUNT,
    DROP_ARENA,
    EXECUTE,
    FORGET_SCHEMAS,
    FRAME,
    REQUEST,
    SCHEMA,
    SEGMENT,
    SEGMENT_BYTES,
)
from naiad.worker.ipc.lent_tensors import LentTensors
from naiad.worker.ipc.segments import Notice, Segment, SegmentPool

MAX_SCHEMAS: Final = 1024
MAX_SCHEMA_BYTES: Final = 1 << 22
"""The bound for all schemas together: they contain the parameters of requests, which may be long and never the same."""
# Kinds of numpy types whose arrays export their memory as it is.
_PLAIN: Final = "biuf"
no_segments: Final = Notice()
"""The notice that the server has no shared memory at all, for its log."""


def frame(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return FRAME.pack(kind, len(payload), number) + payload


def _introduce_arena(frames: list[OutgoingFrame], number: int, descriptor: int, size: int) -> None:
    # Whoever sends the descriptor closes it.
    frames.append((frame(ARENA, number, size.to_bytes(8, "little")), descriptor))


class BatchWriter:
    """Writes the batches for one worker.

    Args:
        arena: where large inputs may lie that the worker uses in place.

    Attributes:
        pool: the server's segments for this worker.
        lent_inputs: those that it uses in place.
        regions: the regions of clients that the worker has been given.
    """

    def __init__(self, spec: ModelSpec, arena: Arena | None = None) -> None:
        self._spec = spec
        # The cache needs the responses, so the worker must not write them to regions.
        self._places = not spec.is_cached
        self._schemas: dict[RequestOptions | bytes, int] = {}
        self._schema_bytes = 0
        self._is_sequence = spec.sequence is not None
        self._uniform: dict[RequestOptions, Uniform | None] = {}
        self.pool = SegmentPool()
        self._arena = arena
        self.lent_inputs = LentTensors()
        self.regions = WorkerRegions()

    def write(self, number: int, first: int, requests: Sequence[InferRequest], frames: list[OutgoingFrame]) -> None:
        """Add the frames of a batch: schemas and segments that the worker does not know yet, then the batch itself.

        The requests are numbered from ``first`` on.

        Raises:
            OSError, MemoryError: there is no shared memory for it. What was added is to be sent all the same.
        """
        self.make_room(frames)
        if (whole := self._write_uniform(number, first, requests, frames)) is not None:
            frames.append((whole, -1))
            return
        self._write(number, first, requests, frames)

    def _write_uniform(
        self, number: int, first: int, requests: Sequence[InferRequest], frames: list[OutgoingFrame]
    ) -> bytes | None:
        """The frame for requests that are described once, None for others."""
        facts = step_facts(requests) if self._is_sequence else None
        if facts is not None:
            options = facts.kind
        else:
            options = requests[0].options
            for request in requests:
                # By identity: requests with one plan share their options.
                if request.options is not options:
                    return None
        try:
            uniform = self._uniform[options]
        except KeyError:
            uniform = self._uniform_schema(requests[0], facts, frames)
            # A request with a shadow travels otherwise than the same request without.
            if options.regions is None or requests[0].use is not None:
                self._uniform[options] = uniform
        return None if uniform is None else uniform.frame(number, first, requests, frames)

    def _uniform_schema(
        self, request: InferRequest, facts: StepFacts | None, frames: list[OutgoingFrame]
    ) -> Uniform | None:
        if facts is not None:
            # Described without sequence and flags, which travel in the frame's column.
            like = InferRequest(facts.kind, request.inputs)
            return step_schema(self._schema_of(like, frames), self._spec, like, facts)
        return uniform_schema(self._schema_of(request, frames), self._spec, self.regions, request)

    def _write(self, number: int, first: int, requests: Sequence[InferRequest], frames: list[OutgoingFrame]) -> None:
        body = self.body(frames, COUNT.pack(len(requests), 0))
        heads = body.heads
        try:
            for request_number, request in enumerate(requests, first):
                request_id = request.id.encode()
                heads.append(REQUEST.pack(request_number, self._schema_of(request, frames), len(request_id), 0))
                for name, array in request.inputs.items():
                    if isinstance(array, RegionTensor):
                        heads.append(self.regions.place(array.part, frames))
                        continue
                    raw = self._bytes_of(name, array)
                    if not self.lend(raw, len(raw), body, frames):
                        body.add(raw, len(raw))
                if request.options.regions is not None:
                    heads += [self.regions.place(part, frames) for part in self._placed(request)]
                heads.append(request_id)
            frames.append((body.frame(EXECUTE, number), -1))
        except BaseException:
            # The worker releases only what a frame has named.
            self.release(body.taken)
            raise

    def release(self, numbers: Sequence[int]) -> None:
        """Take back segments and lent tensors that the worker does not use any more."""
        self.pool.release(numbers)
        self.lent_inputs.release(numbers)

    def can_lend(self, raw: Any) -> bool:
        """Whether ``raw``, which may be a part of a region, lies where the worker can use it in place."""
        if self._arena is None or hasattr(raw, "read_into"):
            return False
        return self._arena.find(np.frombuffer(raw, np.uint8)) is not None

    def lend(self, raw: Any, size: int, body: FrameBody, frames: list[OutgoingFrame]) -> bool:
        """Add a tensor that the worker uses in place, and may change; False if it has to be copied.

        ``raw`` has the buffer protocol, and is one row-major block of ``size`` bytes; a part of a region is copied.
        """
        if self._arena is None or size < SEGMENT_BYTES or hasattr(raw, "read_into"):
            return False
        introduce = partial(_introduce_arena, frames)
        lent = self.lent_inputs.lend(np.frombuffer(raw, np.uint8), self._arena, introduce)
        if lent is not None:
            body.add_lent(*lent, size)
        return lent is not None

    def drop_arenas(self, frames: list[OutgoingFrame]) -> None:
        """Have the worker unmap the arenas of processes that are gone."""
        frames += [(frame(DROP_ARENA, number), -1) for number in self.lent_inputs.forget_closed()]

    def body(self, frames: list[OutgoingFrame], *heads: bytes) -> FrameBody:
        """The body of a frame for the worker; segments that are new to it are announced in ``frames``.

        Whoever does not send the frame releases the segments that it has taken.
        """
        return FrameBody(partial(self._segment_if_any, frames), *heads)

    def _placed(self, request: InferRequest) -> Sequence[RegionPart]:
        """The parts of regions to which the worker writes outputs, in the order of the request's options."""
        return [] if request.use is None or not self._places else list(request.use.outputs.values())

    def _bytes_of(self, name: str, array: Array) -> Any:
        if self._spec.inputs[name].dtype.is_bytes:
            return serialised(array)
        if not array.size:
            return b""
        if array.flags.c_contiguous and array.dtype.kind in _PLAIN:
            # A fifth of the cost of the general way.
            return array.data.cast("B")
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    def make_room(self, frames: list[OutgoingFrame]) -> None:
        """Forget all schemas when there are many. Only before a frame: its parts may use any of them."""
        if len(self._schemas) >= MAX_SCHEMAS or self._schema_bytes >= MAX_SCHEMA_BYTES:
            self._schemas.clear()
            self._schema_bytes = 0
            # They have the numbers of schemas that are void now.
            self._uniform.clear()
            frames.append((frame(FORGET_SCHEMAS), -1))

    def schema(self, described: bytes, frames: list[OutgoingFrame]) -> int:
        """The number of a schema that is known by its content alone."""
        return self._schemas.get(described) or self._add_schema(described, described, frames)

    def _add_schema(self, key: RequestOptions | bytes, described: bytes, frames: list[OutgoingFrame]) -> int:
        number = self._schemas[key] = len(self._schemas) + 1
        self._schema_bytes += len(described)
        frames.append((frame(SCHEMA, number, described), -1))
        return number

    def _schema_of(self, request: InferRequest, frames: list[OutgoingFrame]) -> int:
        options = request.options
        is_placed = options.regions is not None and self._places
        if is_placed and request.use is None:
            # A shadow needs the outputs as well: they come here, and are written to their regions afterwards.
            return self.schema(self._described(request, False), frames)
        found = self._schemas.get(options)
        if found is not None:
            return found
        return self._add_schema(options, self._described(request, is_placed), frames)

    def _described(self, request: InferRequest, is_placed: bool) -> bytes:
        options = request.options
        tensors = [(self._spec.inputs[name], array.shape) for name, array in request.inputs.items()]
        inputs = [[t.name, t.dtype.wire, as_model_sees(shape, t, self._spec)] for t, shape in tensors]
        trace = options.trace if type(options) is TracedOptions else None
        described = {
            "inputs": inputs,
            "outputs": options.outputs,
            "parameters": dict(options.parameters),
            "timeout_us": options.timeout_us,
            "flags": options.flags,
            "correlation_id": options.correlation_id,
            "trace": None if trace is None else trace.context,
            "decoupled": self._spec.decoupled,
        }
        if options.regions is not None and is_placed:
            described["placed"] = [name for name, _ in options.regions.outputs]
        return orjson.dumps(described)

    def _segment(self, size: int, frames: list[OutgoingFrame]) -> Segment:
        """A segment to be filled; a new one is announced to the worker.

        Raises:
            OSError, MemoryError: there is no shared memory for it.
        """
        segment = self.pool.take(size)
        if segment.descriptor >= 0:
            announced = frame(SEGMENT, segment.number, segment.size.to_bytes(8, "little"))
            # Whoever sends the descriptor closes it.
            frames.append((announced, segment.descriptor))
            # ``send`` closes it: the mapping of the server does not need it any more.
            segment.descriptor = -1
        return segment

    def _segment_if_any(self, frames: list[OutgoingFrame], size: int) -> Segment | None:
        """Like ``_segment``; None where the system has no shared memory: the tensor travels in the frame then."""
        try:
            return self._segment(size, frames)
        except OSError as error:
            no_segments.give(f"no shared memory for large tensors ({error}): they travel over the socket, at a cost")
            return None

"""Batches and responses as frames of ``naiad.worker.ipc.frames``: the server's side of the codec."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError, error_of_code
from naiad.execution.batching.reshape import as_clients_get, as_model_sees
from naiad.execution.sequence.step import SequenceRow
from naiad.execution.worker.codec.client_memory import Piece, WorkerRegions
from naiad.execution.worker.codec.output_warnings import OutputWarnings
from naiad.execution.worker.codec.uniform import Uniform, step_kind, step_schema, uniform_schema
from naiad.request import NO_PARAMETERS, Array, InferRequest, Outputs, RequestOptions
from naiad.shared_memory.region import RegionPart
from naiad.shared_memory.tensor_ref import PlacedOutput, RegionTensor, as_array
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE, DataType
from naiad.tensor.packed_bytes import PackedStrings, as_strings, serialised, stays_packed
from naiad.worker.ipc.frame_body import FrameBody, aligned, raw_array
from naiad.worker.ipc.frames import (
    ALIGNMENT,
    COUNT,
    EXECUTE,
    FLAG_EMPTY,
    FLAG_ERROR,
    FLAG_FINAL,
    FORGET_FORMS,
    FORM,
    FRAME,
    IN_REGION,
    PLACE,
    REQUEST,
    RESPONSE_HEAD,
    SEGMENT,
)
from naiad.worker.ipc.segments import Notice, Segment, SegmentPool

MAX_SCHEMAS: Final = 1024
MAX_SCHEMA_BYTES: Final = 1 << 22
"""Of all schemas together: the parameters of requests are part of them, and may be long and never the same."""
# Kinds of numpy types whose arrays give their memory away as it is.
_PLAIN: Final = "biuf"
no_segments: Final = Notice()
"""Says that the server has no shared memory at all."""


def frame(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return FRAME.pack(kind, len(payload), number) + payload


class BatchWriter:
    """Writes the batches for one worker.

    Attributes:
        pool: the server's segments for this worker.
        regions: those of clients that it has been given.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        # Responses that are cached have to come here: the worker cannot write them to their regions.
        self._places = not spec.is_cached
        self._schemas: dict[RequestOptions | bytes, int] = {}
        self._schema_bytes = 0
        self._is_sequence = spec.sequence is not None
        self._uniform: dict[RequestOptions, Uniform | None] = {}
        self.pool = SegmentPool()
        self.regions = WorkerRegions()

    def write(self, number: int, first: int, requests: Sequence[InferRequest], pieces: list[Piece]) -> None:
        """Add the frames of a batch: schemas and segments that the worker does not know yet, then the batch itself.

        The requests are numbered from ``first`` on.

        Raises:
            OSError, MemoryError: there is no shared memory for it. What was added is to be sent all the same.
        """
        self.make_room(pieces)
        if (whole := self._write_uniform(number, first, requests, pieces)) is not None:
            pieces.append((whole, -1))
            return
        self._write(number, first, requests, pieces)

    def _write_uniform(
        self, number: int, first: int, requests: Sequence[InferRequest], pieces: list[Piece]
    ) -> bytes | None:
        """The frame for requests that are described once, None for others."""
        kind = step_kind(requests) if self._is_sequence else None
        if (options := kind) is None:
            options = requests[0].options
            for request in requests:
                if request.options is not options:
                    return None
        try:
            uniform = self._uniform[options]
        except KeyError:
            uniform = self._uniform_schema(requests[0], kind, pieces)
            # A request that a shadow watches says nothing about those that nobody watches.
            if options.regions is None or requests[0].use is not None:
                self._uniform[options] = uniform
        return None if uniform is None else uniform.frame(number, first, requests, pieces)

    def _uniform_schema(
        self, request: InferRequest, kind: RequestOptions | None, pieces: list[Piece]
    ) -> Uniform | None:
        if kind is not None and isinstance(request, SequenceRow) and request.facts is not None:
            like = InferRequest(kind, request.inputs)
            return step_schema(self._schema_of(like, pieces), self._spec, like, request.facts)
        return uniform_schema(self._schema_of(request, pieces), self._spec, self.regions, request)

    def _write(self, number: int, first: int, requests: Sequence[InferRequest], pieces: list[Piece]) -> None:
        body = self.body(pieces, COUNT.pack(len(requests), 0))
        heads = body.heads
        try:
            for request_number, request in enumerate(requests, first):
                request_id = request.id.encode()
                heads.append(REQUEST.pack(request_number, self._schema_of(request, pieces), len(request_id), 0))
                for name, array in request.inputs.items():
                    if isinstance(array, RegionTensor):
                        heads.append(self.regions.place(array.part, pieces))
                        continue
                    raw = self._bytes_of(name, array)
                    body.add(raw, len(raw))
                if request.options.regions is not None:
                    heads += [self.regions.place(part, pieces) for part in self._placed(request)]
                heads.append(request_id)
            pieces.append((body.frame(EXECUTE, number), -1))
        except BaseException:
            self.pool.give_back(body.taken)
            raise

    def body(self, pieces: list[Piece], *heads: bytes) -> FrameBody:
        """The body of a frame for the worker; segments that are new to it are announced in ``pieces``.

        Whoever does not send the frame releases the segments that it has taken.
        """
        return FrameBody(partial(self._segment_if_any, pieces), *heads)

    def _placed(self, request: InferRequest) -> Sequence[RegionPart]:
        """Where the worker writes outputs itself, in the order of the request's options."""
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

    def make_room(self, pieces: list[Piece]) -> None:
        """Forget all schemas when there are many. Only before a frame: its parts may use any of them."""
        if len(self._schemas) >= MAX_SCHEMAS or self._schema_bytes >= MAX_SCHEMA_BYTES:
            self._schemas.clear()
            self._schema_bytes = 0
            self._uniform.clear()
            pieces.append((frame(FORGET_FORMS), -1))

    def schema(self, described: bytes, pieces: list[Piece]) -> int:
        """The number of a schema that is known by its content alone."""
        return self._schemas.get(described) or self._add_schema(described, described, pieces)

    def _add_schema(self, key: RequestOptions | bytes, described: bytes, pieces: list[Piece]) -> int:
        number = self._schemas[key] = len(self._schemas) + 1
        self._schema_bytes += len(described)
        pieces.append((frame(FORM, number, described), -1))
        return number

    def _schema_of(self, request: InferRequest, pieces: list[Piece]) -> int:
        options = request.options
        is_placed = options.regions is not None and self._places
        if is_placed and request.use is None:
            # A shadow needs the outputs as well: they come here, and are written to their regions afterwards.
            return self.schema(self._described(request, False), pieces)
        found = self._schemas.get(options)
        if found is not None:
            return found
        return self._add_schema(options, self._described(request, is_placed), pieces)

    def _described(self, request: InferRequest, is_placed: bool) -> bytes:
        options = request.options
        tensors = [(self._spec.inputs[name], array.shape) for name, array in request.inputs.items()]
        inputs = [[t.name, t.dtype.wire, as_model_sees(shape, t, self._spec)] for t, shape in tensors]
        described = {
            "inputs": inputs,
            "outputs": options.outputs,
            "parameters": dict(options.parameters),
            "timeout_us": options.timeout_us,
            "flags": options.flags,
            "correlation_id": options.correlation_id,
            "trace": None,
            "decoupled": self._spec.decoupled,
        }
        if options.regions is not None and is_placed:
            described["placed"] = [name for name, _ in options.regions.outputs]
        return orjson.dumps(described)

    def _segment(self, size: int, pieces: list[Piece]) -> Segment:
        """A segment to be filled; a new one is announced to the worker.

        Raises:
            OSError, MemoryError: there is no shared memory for it.
        """
        segment = self.pool.take(size)
        if segment.descriptor >= 0:
            announced = frame(SEGMENT, segment.number, segment.size.to_bytes(8, "little"))
            # It is closed by whoever sends it.
            pieces.append((announced, segment.descriptor))
            segment.descriptor = -1
        return segment

    def _segment_if_any(self, pieces: list[Piece], size: int) -> Segment | None:
        """Like ``_segment``; None where the system has no shared memory: the tensor travels in the frame then."""
        try:
            return self._segment(size, pieces)
        except OSError as error:
            no_segments.give(f"no shared memory for large tensors ({error}): they travel over the socket, at a cost")
            return None


class ResponseSchema(NamedTuple):
    """What responses of a worker have in common: outputs, parameters, and whether both are as configured."""

    outputs: Sequence[tuple[str, DataType, tuple[int, ...], int]]
    parameters: Mapping[str, Any]
    fits: bool


class UniformLayout(NamedTuple):
    """Where uniform responses of a schema have their outputs.

    Attributes:
        stride: how many bytes each of them takes.
        outputs: those that the model has, with datatype, shape, and offset and size in the first response.
        schema: theirs.
    """

    stride: int
    outputs: Sequence[tuple[str, np.dtype[Any], tuple[int, ...], int, int]]
    schema: ResponseSchema


class Response(NamedTuple):
    """One response of a worker. ``outputs`` None: there is none, only the end or an error.

    ``output_ns`` is when its outputs were begun to be made, on this side; 0 where it has none. ``is_cancelled``: the
    model ended a request that its caller had given up.
    """

    request: int
    outputs: Mapping[str, Array] | None
    error: NaiadError | None
    flags: int
    output_ns: int = 0
    is_cancelled: bool = False

    @property
    def final(self) -> bool:
        """Nothing follows for this request."""
        return bool(self.flags & FLAG_FINAL)


class ResponseReader:
    """Reads the responses of one worker.

    Args:
        open_segment: the bytes of a tensor that lies in a segment of the worker, by number, offset and size.
    """

    def __init__(self, spec: ModelSpec, open_segment: Callable[[int, int, int], Array]) -> None:
        self._spec = spec
        self._open = open_segment
        self._output_warnings = OutputWarnings(spec)
        self._schemas: dict[int, ResponseSchema] = {0: ResponseSchema((), NO_PARAMETERS, True)}
        self._layouts: dict[int, UniformLayout] = {}

    def learn(self, number: int, raw: bytes) -> None:
        """Take a schema in."""
        described = orjson.loads(raw)
        outputs = []
        fits = True
        for name, wire, shape in described["outputs"]:
            dtype, elements = BY_WIRE[wire], 1
            for dim in shape:
                elements *= dim
            self._output_warnings.look_at(name, dtype, tuple(shape))
            outputs.append((name, dtype, self._for_clients(name, tuple(shape), elements), elements))
            known = self._spec.outputs.get(name)
            fits = fits and (known is None or known.dtype is dtype)
        parameters = described.get("parameters") or NO_PARAMETERS
        self._schemas[number] = ResponseSchema(outputs, parameters, fits and not parameters)
        self._layouts.pop(number, None)

    def _for_clients(self, name: str, shape: tuple[int, ...], elements: int) -> tuple[int, ...]:
        """The shape after the configuration's ``reshape``; the model's own where that does not fit."""
        tensor = self._spec.outputs.get(name)
        if tensor is None or tensor.reshape is None:
            return shape
        target = as_clients_get(shape, tensor, self._spec)
        return target if math.prod(target) == elements and -1 not in target else shape

    def forget(self) -> None:
        """All schemas are void."""
        self._schemas = {0: self._schemas[0]}
        self._layouts.clear()

    def read(self, payload: bytearray, came_ns: int = 0) -> list[Response]:
        """The responses of a ``RESPONSES`` frame, which came at ``came_ns``."""
        count, _ = COUNT.unpack_from(payload)
        return self._read(payload, count, COUNT.size, came_ns)

    def read_one(self, payload: bytearray, came_ns: int = 0) -> Response:
        """The response of a ``RESPONSE`` frame."""
        return self._read(payload, 1, 0, came_ns)[0]

    def read_uniform(self, payload: bytearray) -> list[Mapping[str, Array]]:
        """The outputs of each request of the batch that a ``RESPONSES_UNIFORM`` frame answers."""
        count, schema_number = COUNT.unpack_from(payload)
        stride, outputs, schema = self._layouts.get(schema_number) or self._lay_out(schema_number)
        if len(payload) != ALIGNMENT + count * stride:
            raise ValueError(
                f"{count} uniform responses have {len(payload)} bytes, {ALIGNMENT} and {stride} each expected"
            )
        found: list[Mapping[str, Array]]
        if count == 1:
            found = [{name: np.ndarray(shape, dtype, payload, offset) for name, dtype, shape, offset, _ in outputs}]
        elif len(outputs) == 1:
            name, dtype, shape, offset, size = outputs[0]
            found = [{name: array} for array in _column(payload, count, stride, dtype, shape, offset, size)]
        else:
            columns = [(output[0], _column(payload, count, stride, *output[1:])) for output in outputs]
            found = [{name: arrays[i] for name, arrays in columns} for i in range(count)]
        return found if schema.fits else [Outputs(arrays, schema.parameters) for arrays in found]

    def _lay_out(self, schema_number: int) -> UniformLayout:
        schema = self._schemas[schema_number]
        offset, outputs = ALIGNMENT, []
        for name, dtype, shape, elements in schema.outputs:
            size = elements * dtype.itemsize
            if name in self._spec.outputs:
                outputs.append((name, dtype.numpy, shape, offset, size))
            offset += aligned(size)
        layout = self._layouts[schema_number] = UniformLayout(offset - ALIGNMENT, outputs, schema)
        return layout

    def _read(self, payload: bytearray, count: int, at: int, came_ns: int) -> list[Response]:
        described = []
        for _ in range(count):
            request, schema_number, flags, error_bytes, _ = RESPONSE_HEAD.unpack_from(payload, at)
            schema = self._schemas[schema_number]
            places_at = at + RESPONSE_HEAD.size
            end = places_at + len(schema.outputs) * PLACE.size
            at = end + error_bytes
            described.append((request, schema, flags, places_at, payload[end:at]))
        data = aligned(at)
        return [self._make(payload, *one, data, came_ns) for one in described]

    def _make(
        self,
        payload: bytearray,
        request: int,
        schema: ResponseSchema,
        flags: int,
        places_at: int,
        said: bytearray,
        data: int,
        came_ns: int,
    ) -> Response:
        arrays: dict[str, Array] = {}
        error: NaiadError | None = None
        for name, dtype, shape, elements in schema.outputs:
            place = PLACE.unpack_from(payload, places_at)
            places_at += PLACE.size
            if place[1] == IN_REGION:
                arrays[name] = as_array(PlacedOutput(dtype.numpy, shape))
                continue
            # Before anything that can fail: a segment is released when nothing refers to its tensor any more.
            raw = raw_array(self._open, payload, place, data)
            if name not in self._spec.outputs:
                continue
            try:
                arrays[name] = _tensor(raw, name, dtype, shape, elements, self._spec.name)
            except NaiadError as wrong:
                error = wrong
        if flags & FLAG_ERROR:
            told = orjson.loads(bytes(said))
            error = error_of_code(int(told.get("code", 13)), str(told["message"]))
        if error is not None or flags & FLAG_EMPTY:
            return Response(request, None, error, flags)
        return Response(request, arrays if schema.fits else Outputs(arrays, schema.parameters), None, flags, came_ns)


def _column(
    payload: bytearray, count: int, stride: int, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, size: int
) -> Sequence[Array]:
    """One output of each of ``count`` responses, which lie ``stride`` bytes apart."""
    if size == stride and shape:
        # Views of one array are quicker to make than arrays.
        return list(np.ndarray((count, *shape), dtype, payload, offset))
    return [np.ndarray(shape, dtype, payload, offset + i * stride) for i in range(count)]


def _tensor(raw: Array, name: str, dtype: DataType, shape: tuple[int, ...], elements: int, model: str) -> Array:
    if dtype.is_bytes:
        place = f"output '{name}' of model '{model}'"
        if stays_packed(raw.nbytes, elements):
            # The worker wrote as many elements as the shape says.
            return as_strings(PackedStrings(raw.data, shape, place))
        return decode_bytes(raw.tobytes(), elements, place).reshape(shape)
    if raw.nbytes != elements * dtype.itemsize:
        raise BackendError(
            f"model '{model}' returned output '{name}' with {raw.nbytes} bytes, its shape {list(shape)} needs "
            f"{elements * dtype.itemsize}"
        )
    return raw.view(dtype.numpy).reshape(shape)

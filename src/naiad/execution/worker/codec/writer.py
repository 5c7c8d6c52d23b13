"""Batches and responses as frames of ``naiad.worker.ipc.frames``: the server's side of the codec."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError, error_of_code
from naiad.execution.batching.reshape import as_clients_get, as_model_sees
from naiad.execution.batching.response import Response
from naiad.execution.worker.codec.client_memory import WorkerRegions
from naiad.execution.worker.codec.output_warnings import OutputWarnings
from naiad.execution.worker.codec.uniform import UniformSchema, uniform_schema
from naiad.execution.worker.codec.uniform_shm import UniformShmSchema, placed_form
from naiad.request import NO_PARAMETERS, Array, InferRequest, Outputs, RequestOptions
from naiad.shared_memory.region import RegionPart
from naiad.shared_memory.tensor_ref import PlacedOutput, RegionTensor, as_array
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE, DataType
from naiad.tensor.packed_bytes import PackedStrings, as_strings, serialised, stays_packed
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
    SEGMENT_BYTES,
)
from naiad.worker.ipc.schemas import aligned
from naiad.worker.ipc.segments import Notice, Segment, SegmentPool

MAX_FORMS: Final = 1024
MAX_FORM_BYTES: Final = 1 << 22
"""Of all forms together: the parameters of requests are part of them, and may be long and never the same."""
# Kinds of numpy types whose arrays give their memory away as it is.
_PLAIN: Final = "biuf"
_ONE: Final = COUNT.pack(1, 0)
_BEHIND_NUMBER: Final = COUNT.size + 8
_MAX_PLACED: Final = 256
_MAX_PLACED_BYTES: Final = 1024
no_segments: Final = Notice()
"""Says that the server has no shared memory at all."""

Piece = tuple[bytes, int]
"""Bytes to send, and the descriptor that goes with the first of them; -1 for none."""


def frame(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return FRAME.pack(kind, len(payload), number) + payload


class BatchWriter:
    """Writes the batches for one child.

    Attributes:
        pool: the server's segments for this child.
        regions: those of clients that it has been given.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        # What the response cache is to keep has to come here.
        self._places = not spec.is_cached
        self._forms: dict[RequestOptions | bytes, int] = {}
        self._form_bytes = 0
        self._alike: dict[RequestOptions, UniformSchema | UniformShmSchema | None] = {}
        self.pool = SegmentPool()
        self.regions = WorkerRegions()

    def write(self, number: int, first: int, requests: Sequence[InferRequest], pieces: list[Piece]) -> None:
        """Add the frames of a batch: forms and segments that the child does not know yet, then the batch itself.

        The requests are numbered from ``first`` on.

        Raises:
            OSError, MemoryError: there is no shared memory for it. What was added is to be sent all the same.
        """
        self.make_room(pieces)
        if (whole := self._write_uniform(number, first, requests, pieces)) is not None:
            pieces.append((whole, -1))
            return
        taken: list[int] = []
        try:
            self._write(number, first, requests, pieces, taken)
        except BaseException:
            self.pool.give_back(taken)
            raise

    def _write_uniform(
        self, number: int, first: int, requests: Sequence[InferRequest], pieces: list[Piece]
    ) -> bytes | None:
        """The frame for requests that differ in their tensors' elements alone, None for others."""
        options = requests[0].options
        for request in requests:
            if request.options is not options:
                return None
        if options not in self._alike:
            self._alike[options] = self._uniform_schema(requests[0], pieces)
        alike = self._alike[options]
        if type(alike) is UniformSchema:
            return alike.frame(number, first, requests)
        return alike.frame(number, first, requests, pieces) if type(alike) is UniformShmSchema else None

    def _uniform_schema(self, request: InferRequest, pieces: list[Piece]) -> UniformSchema | UniformShmSchema | None:
        form = self._form_of(request, pieces)
        placed = placed_form(form, self._spec, self.regions, request)
        return placed or uniform_schema(form, self._spec, request)

    def _write(
        self, number: int, first: int, requests: Sequence[InferRequest], pieces: list[Piece], taken: list[int]
    ) -> None:
        ids = [request.id.encode() for request in requests]
        places = sum([len(r.inputs) + (0 if r.options.regions is None else len(self._placed(r))) for r in requests])
        head_bytes = COUNT.size + len(requests) * REQUEST.size + places * PLACE.size + sum(map(len, ids))
        begin = at = -(-head_bytes // ALIGNMENT) * ALIGNMENT
        parts: list[Any] = [COUNT.pack(len(requests), 0)]
        data: list[Any] = [bytes(begin - head_bytes)]
        for request_number, (request, request_id) in enumerate(zip(requests, ids, strict=True), first):
            parts.append(REQUEST.pack(request_number, self._form_of(request, pieces), len(request_id), 0))
            for name, array in request.inputs.items():
                if isinstance(array, RegionTensor):
                    parts.append(self.regions.place(array.part, pieces))
                    continue
                raw = self._bytes_of(name, array)
                size = len(raw)
                if size >= SEGMENT_BYTES and (segment := self.segment_if_any(size, pieces)) is not None:
                    taken.append(segment.number)
                    segment.write(raw, size)
                    parts.append(PLACE.pack(segment.number, 0, 0, size))
                else:
                    parts.append(PLACE.pack(0, 0, at - begin, size))
                    padding = -size % ALIGNMENT
                    data += (raw, bytes(padding))
                    at += size + padding
            if request.options.regions is not None:
                parts += [self.regions.place(part, pieces) for part in self._placed(request)]
            parts.append(request_id)
        pieces.append((b"".join((FRAME.pack(EXECUTE, at, number), *parts, *data)), -1))

    def _placed(self, request: InferRequest) -> Sequence[RegionPart]:
        """Where the child is to write outputs itself, in the order of the request's terms."""
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
        """Begin forms anew when there are many; before a frame, whose parts may use any of them."""
        if len(self._forms) >= MAX_FORMS or self._form_bytes >= MAX_FORM_BYTES:
            self._forms.clear()
            self._form_bytes = 0
            self._alike.clear()
            pieces.append((frame(FORGET_FORMS), -1))

    def form(self, described: bytes, pieces: list[Piece]) -> int:
        """The number of a form that is known by its content alone."""
        return self._forms.get(described) or self._add_form(described, described, pieces)

    def _add_form(self, key: RequestOptions | bytes, described: bytes, pieces: list[Piece]) -> int:
        number = self._forms[key] = len(self._forms) + 1
        self._form_bytes += len(described)
        pieces.append((frame(FORM, number, described), -1))
        return number

    def _form_of(self, request: InferRequest, pieces: list[Piece]) -> int:
        options = request.options
        is_placed = options.regions is not None and self._places
        if is_placed and request.use is None:
            # One that a shadow watches, or is a copy for: what it asks for in regions is written behind the model.
            return self.form(self._described(request, False), pieces)
        found = self._forms.get(options)
        if found is not None:
            return found
        return self._add_form(options, self._described(request, is_placed), pieces)

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

    def segment(self, size: int, pieces: list[Piece]) -> Segment:
        """A segment to be filled, which the child is told about if it is new.

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

    def segment_if_any(self, size: int, pieces: list[Piece]) -> Segment | None:
        """Like ``segment``; None where the system has no shared memory: the tensor travels in the frame then."""
        try:
            return self.segment(size, pieces)
        except OSError as error:
            no_segments.give(f"no shared memory for large tensors ({error}): they travel over the socket, at a cost")
            return None


class ResponseSchema(NamedTuple):
    """What a child says about responses again and again."""

    outputs: Sequence[tuple[str, DataType, tuple[int, ...], int]]
    parameters: Mapping[str, Any]
    fits: bool


class UniformLayout(NamedTuple):
    """Where responses alike of a form have their outputs.

    Attributes:
        stride: how many bytes each of them takes.
        outputs: those that the model has, with datatype, shape, and offset and size in the first response.
        form: theirs.
    """

    stride: int
    outputs: Sequence[tuple[str, np.dtype[Any], tuple[int, ...], int, int]]
    form: ResponseSchema


class ResponseReader:
    """Reads the responses of one child.

    Args:
        open_segment: the bytes of a tensor that lies in a segment of the child, by number, offset and size.
    """

    def __init__(self, spec: ModelSpec, open_segment: Callable[[int, int, int], Array]) -> None:
        self._spec = spec
        self._open = open_segment
        self._output_warnings = OutputWarnings(spec)
        self._forms: dict[int, ResponseSchema] = {0: ResponseSchema((), NO_PARAMETERS, True)}
        self._alike: dict[int, UniformLayout] = {}
        # What the one response of a batch is behind the number of its request, and its outputs, all in regions.
        self._placed: dict[bytes, Mapping[str, Array]] = {}

    def learn(self, number: int, raw: bytes) -> None:
        """Take a form in."""
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
        self._forms[number] = ResponseSchema(outputs, parameters, fits and not parameters)
        self._alike.pop(number, None)

    def _for_clients(self, name: str, shape: tuple[int, ...], elements: int) -> tuple[int, ...]:
        """The shape after the configuration's ``reshape``; the model's own where that does not fit."""
        tensor = self._spec.outputs.get(name)
        if tensor is None or tensor.reshape is None:
            return shape
        target = as_clients_get(shape, tensor, self._spec)
        return target if math.prod(target) == elements and -1 not in target else shape

    def forget(self) -> None:
        """All forms are void."""
        self._forms = {0: self._forms[0]}
        self._alike.clear()
        self._placed.clear()

    def read(self, payload: bytearray, came_ns: int = 0) -> list[Response]:
        """The responses of a ``RESPONSES`` frame, which came at ``came_ns``."""
        if payload.startswith(_ONE):
            return [self._read_only(payload, came_ns)]
        count, _ = COUNT.unpack_from(payload)
        return self._read(payload, count, COUNT.size, came_ns)

    def _read_only(self, payload: bytearray, came_ns: int) -> Response:
        """The only response of a frame. Those whose outputs are all in regions differ in their numbers alone."""
        is_short = len(payload) <= _MAX_PLACED_BYTES
        if is_short and self._placed and (known := self._placed.get(bytes(payload[_BEHIND_NUMBER:]))) is not None:
            number = int.from_bytes(payload[COUNT.size : _BEHIND_NUMBER], "little")
            return Response(number, dict(known), None, FLAG_FINAL, came_ns)
        response = self._read(payload, 1, COUNT.size, came_ns)[0]
        outputs = response.outputs
        is_plain = is_short and response.flags == FLAG_FINAL and type(outputs) is dict
        if is_plain and outputs and all(isinstance(array, PlacedOutput) for array in outputs.values()):
            if len(self._placed) >= _MAX_PLACED:
                self._placed.clear()
            self._placed[bytes(payload[_BEHIND_NUMBER:])] = dict(outputs)
        return response

    def read_one(self, payload: bytearray, came_ns: int = 0) -> Response:
        """The response of a ``RESPONSE`` frame."""
        return self._read(payload, 1, 0, came_ns)[0]

    def read_uniform(self, payload: bytearray) -> list[Mapping[str, Array]]:
        """The outputs of each request of the batch that a ``RESPONSES_UNIFORM`` frame answers."""
        count, form_number = COUNT.unpack_from(payload)
        stride, outputs, form = self._alike.get(form_number) or self._lay_out(form_number)
        if len(payload) != ALIGNMENT + count * stride:
            raise ValueError(
                f"{count} responses alike have {len(payload)} bytes, {ALIGNMENT} and {stride} each expected"
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
        return found if form.fits else [Outputs(arrays, form.parameters) for arrays in found]

    def _lay_out(self, form_number: int) -> UniformLayout:
        form = self._forms[form_number]
        offset, outputs = ALIGNMENT, []
        for name, dtype, shape, elements in form.outputs:
            size = elements * dtype.itemsize
            if name in self._spec.outputs:
                outputs.append((name, dtype.numpy, shape, offset, size))
            offset += aligned(size)
        layout = self._alike[form_number] = UniformLayout(offset - ALIGNMENT, outputs, form)
        return layout

    def _read(self, payload: bytearray, count: int, at: int, came_ns: int) -> list[Response]:
        found: list[_Described] = []
        for _ in range(count):
            request, form_number, flags, error_bytes, _ = RESPONSE_HEAD.unpack_from(payload, at)
            at += RESPONSE_HEAD.size
            form = self._forms[form_number]
            places = [PLACE.unpack_from(payload, at + i * PLACE.size) for i in range(len(form.outputs))]
            at += len(places) * PLACE.size
            found.append(_Described(request, form, flags, places, payload[at : at + error_bytes]))
            at += error_bytes
        data = -(-at // ALIGNMENT) * ALIGNMENT
        return [self._make(payload, one, data, came_ns) for one in found]

    def _make(self, payload: bytearray, described: _Described, data: int, came_ns: int) -> Response:
        request, form, flags, places, said = described
        arrays: dict[str, Array] = {}
        error: NaiadError | None = None
        for (name, dtype, shape, elements), (segment, kind, offset, size) in zip(form.outputs, places, strict=True):
            if kind == IN_REGION:
                arrays[name] = as_array(PlacedOutput(dtype.numpy, shape))
                continue
            raw = self._open(segment, offset, size) if segment else _inside(payload, data + offset, size)
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
        return Response(request, arrays if form.fits else Outputs(arrays, form.parameters), None, flags, came_ns)


class _Described(NamedTuple):
    """A response without its tensors."""

    request: int
    form: ResponseSchema
    flags: int
    places: Sequence[tuple[int, int, int, int]]
    error: bytearray


def _inside(payload: bytearray, offset: int, size: int) -> Array:
    return np.frombuffer(payload, np.uint8, size, offset)


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
            # The child wrote as many elements as the shape says.
            return as_strings(PackedStrings(raw.data, shape, place))
        return decode_bytes(raw.tobytes(), elements, place).reshape(shape)
    if raw.nbytes != elements * dtype.itemsize:
        raise BackendError(
            f"model '{model}' returned output '{name}' with {raw.nbytes} bytes, its shape {list(shape)} needs "
            f"{elements * dtype.itemsize}"
        )
    return raw.view(dtype.numpy).reshape(shape)

"""The responses of a worker, read from frames of ``naiad.worker.ipc.frames``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError, error_of_code
from naiad.execution.batching.reshape import as_clients_get
from naiad.execution.batching.response import Response
from naiad.execution.worker.codec.output_warnings import OutputWarnings
from naiad.request import NO_PARAMETERS, Array, Outputs
from naiad.shared_memory.tensor_ref import PlacedOutput, as_array
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE, DataType
from naiad.tensor.packed_bytes import PackedStrings, as_strings, stays_packed
from naiad.worker.ipc.frame_body import OpenSegment, aligned, raw_array
from naiad.worker.ipc.frames import ALIGNMENT, COUNT, FLAG_EMPTY, FLAG_ERROR, IN_INPUT, IN_REGION, PLACE, RESPONSE_HEAD


class ResponseSchema(NamedTuple):
    """The common part of responses of a worker: outputs, parameters, and whether both are as configured."""

    outputs: Sequence[tuple[str, DataType, tuple[int, ...], int]]
    parameters: Mapping[str, Any]
    fits: bool


class UniformLayout(NamedTuple):
    """The places of the outputs in uniform responses of a schema.

    Attributes:
        stride: the bytes of each response.
        outputs: those of the configuration, with datatype, shape, and offset and size in the first response.
        schema: of these responses.
    """

    stride: int
    outputs: Sequence[tuple[str, np.dtype[Any], tuple[int, ...], int, int]]
    schema: ResponseSchema


class ResponseReader:
    """Reads the responses of one worker.

    Args:
        open_segment: the bytes of a tensor that lies in a segment of the worker, by number, offset and size.
        open_input: the same for a tensor that lies in an input of the worker.
    """

    def __init__(self, spec: ModelSpec, open_segment: OpenSegment, open_input: OpenSegment) -> None:
        self._spec = spec
        self._open = open_segment
        self._open_input = open_input
        self._output_warnings = OutputWarnings(spec)
        # Errors and empty responses have schema 0, which the worker does not announce.
        self._schemas: dict[int, ResponseSchema] = {0: ResponseSchema((), NO_PARAMETERS, True)}
        self._layouts: dict[int, UniformLayout] = {}

    def learn(self, number: int, raw: bytes) -> None:
        """Read a schema."""
        described = orjson.loads(raw)
        outputs = []
        fits = True
        for name, wire, shape in described["outputs"]:
            dtype, elements = BY_WIRE[wire], 1
            for dim in shape:
                elements *= dim
            # Once for each schema here, and not for each response.
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
        # One test in place of one for each tensor: the views below cannot reach beyond the frame.
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
        # All heads come before the data, whose beginning is known only behind the last head.
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
            # The worker has written it to the client's region already.
            if place[1] == IN_REGION:
                arrays[name] = as_array(PlacedOutput(dtype.numpy, shape))
                continue
            # Before anything that can fail: a segment is released when nothing refers to its tensor any more.
            raw = raw_array(self._open_input if place[1] == IN_INPUT else self._open, payload, place, data)
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
    # The output fills the whole stride, so all responses form one array.
    if size == stride and shape:
        # Views of one array are quicker to make than arrays.
        return list(np.ndarray((count, *shape), dtype, payload, offset))
    return [np.ndarray(shape, dtype, payload, offset + i * stride) for i in range(count)]


def _tensor(raw: Array, name: str, dtype: DataType, shape: tuple[int, ...], elements: int, model: str) -> Array:
    if dtype.is_bytes:
        place = f"output '{name}' of model '{model}'"
        if stays_packed(raw.nbytes, elements):
            # The worker wrote as many elements as the shape has, so they are not counted again.
            return as_strings(PackedStrings(raw.data, shape, place))
        return decode_bytes(raw.tobytes(), elements, place).reshape(shape)
    if raw.nbytes != elements * dtype.itemsize:
        raise BackendError(
            f"model '{model}' returned output '{name}' with {raw.nbytes} bytes, its shape {list(shape)} needs "
            f"{elements * dtype.itemsize}"
        )
    return raw.view(dtype.numpy).reshape(shape)

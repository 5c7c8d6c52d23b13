"""Uniform batches: requests and responses that differ in little beside their elements, and are described once.

The small tensors of such requests lie one request after the other in one frame.

A model asks for some of the tensors of some requests. A tensor is made when the model asks for it, as a view of the
array of that input over all requests: such views cost a quarter of arrays that are made one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Tuple

import numpy as np

from ..api.inference_request import TRITONSERVER_REQUEST_RELEASE_ALL, InferenceRequest
from ..api.inference_response import InferenceResponse
from ..api.tensor import Tensor, made_of, received
from ..ipc.datatypes import BF16, BYTES, WorkerDataType
from ..ipc.frame_body import PADDING, aligned
from ..ipc.frames import ALIGNMENT, COLUMN_STEPS, FLAG_FINAL, SEGMENT_BYTES, STEP, UNIFORM
from ..ipc.schemas import CorrelationId, Schema, Schemas
from ..ipc.types import Array

if TYPE_CHECKING:
    from ..api.host import Host

NO_ID = bytearray()


class UniformRows:
    """The tensors of ``count`` requests of one schema; those of the first begin at ``data`` in the payload."""

    __slots__ = ("_columns", "_count", "_data", "_payload", "schema")

    def __init__(self, payload: bytearray, data: int, count: int, schema: Schema) -> None:
        self.schema = schema
        self._payload = payload
        self._data = data
        self._count = count
        self._columns: list[Array | None] = [None] * len(schema.tensors)

    def tensor(self, index: int, row: int) -> Tensor:
        """The tensor at ``index`` of the schema, of the request at ``row``."""
        schema = self.schema
        name, datatype, shape = schema.tensors[index]
        offset, size, _ = schema.layout[index]
        at = self._data + row * schema.stride + offset
        # numpy has no view of strings, and no type for BF16.
        if datatype is BF16 or datatype is BYTES:
            return received(name, datatype, shape, (self._payload, at, size))
        # With one row a column saves nothing, and a row of a column of scalars would be no array.
        if self._count == 1 or not shape:
            return made_of(name, datatype, shape, np.ndarray(shape, datatype.stored, self._payload, at))
        column = self._columns[index]
        if column is None:
            column = self._columns[index] = self._column(index)
        return made_of(name, datatype, shape, column[row])

    def _column(self, index: int) -> Array:
        """One input of all requests."""
        schema = self.schema
        _, datatype, shape = schema.tensors[index]
        offset, _, strides = schema.layout[index]
        column: Array = np.ndarray(
            (self._count, *shape), datatype.stored, self._payload, self._data + offset, (schema.stride, *strides)
        )
        return column


class UniformRequest(InferenceRequest):
    """A request of a uniform batch; models see no difference."""

    __slots__ = ("_found", "_row", "_rows")
    _found: dict[str, Tensor]
    _row: int
    _rows: UniformRows

    def _tensors(self) -> list[Tensor]:
        inputs = self._inputs
        if inputs is None:
            rows, found = self._rows, self._found
            inputs = self._inputs = [
                # One object for each input, whichever way the model asks for it.
                found.get(name) or found.setdefault(name, rows.tensor(index, self._row))
                for name, index in rows.schema.indices.items()
            ]
        return inputs

    def _input(self, name: str) -> Tensor | None:
        tensor = self._found.get(name)
        if tensor is None:
            index = self._rows.schema.indices.get(name)
            if index is None:
                return None
            tensor = self._found[name] = self._rows.tensor(index, self._row)
        return tensor

    def _begin(self, host: Host, number: int, rows: UniformRows, row: int, request_id: bytearray) -> None:
        """Initialise the request at ``row``, in place of ``__init__``, which models call."""
        self._host = host
        self._number = number
        self._schema = rows.schema
        self._rows = rows
        self._row = row
        self._found = {}
        self._id = request_id
        self._flags = rows.schema.flags
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        self._inputs = self._sender = self._options = None


UniformRequest.__name__ = InferenceRequest.__name__


class UniformSequenceRequest(UniformRequest):
    """A request with a sequence of its own; models see no difference."""

    __slots__ = ("_correlation_id",)
    _correlation_id: int

    def correlation_id(self) -> CorrelationId:
        """The number of the sequence, 0 for none."""
        return self._correlation_id


UniformSequenceRequest.__name__ = InferenceRequest.__name__


def read_uniform(host: Host, payload: bytearray, schemas: Schemas) -> tuple[list[InferenceRequest], Schema]:
    """The requests of an ``EXECUTE_UNIFORM`` frame, and what they have in common. Their tensors lie in the frame."""
    first, count, schema_number, id_bytes, column = UNIFORM.unpack_from(payload)
    ids_at = UNIFORM.size + count * STEP.size if column == COLUMN_STEPS else UNIFORM.size
    ids = payload[ids_at : ids_at + id_bytes].split(b"\0") if id_bytes else [NO_ID] * count
    rows = UniformRows(payload, aligned(ids_at + id_bytes), count, schemas[schema_number])
    if column == COLUMN_STEPS:
        return _read_steps(host, payload, first, ids, rows), rows.schema
    requests: list[InferenceRequest] = []
    for row, request_id in enumerate(ids):
        request = UniformRequest.__new__(UniformRequest)
        request._begin(host, first + row, rows, row, request_id)
        requests.append(request)
    return requests, rows.schema


def _read_steps(
    host: Host, payload: bytearray, first: int, ids: list[bytearray], rows: UniformRows
) -> list[InferenceRequest]:
    requests: list[InferenceRequest] = []
    for row, request_id in enumerate(ids):
        request = UniformSequenceRequest.__new__(UniformSequenceRequest)
        request._begin(host, first + row, rows, row, request_id)
        request._correlation_id, request._flags, _ = STEP.unpack_from(payload, UNIFORM.size + row * STEP.size)
        requests.append(request)
    return requests


# Responses

AddressedResponse = Tuple[InferenceRequest, Optional[InferenceResponse], int]
"""A request, the response to it if there is one, and the flags."""
_Facts = Tuple[str, WorkerDataType, Tuple[int, ...], bytes]
"""Name, datatype and shape of a tensor, and the bytes that fill the room to the next."""


def uniform_data(responses: list[AddressedResponse], schema: Schema) -> list[Any] | None:
    """The data part of the responses to requests of that schema, in parts; None if their tensors differ, or one of
    them is an error or has parameters."""
    facts = _facts_of(responses, schema)
    if facts is None:
        return None
    data: list[Any] = []
    for _, response, flags in responses:
        # Anything but plain outputs needs the general frame.
        if response is None or flags != FLAG_FINAL or response._error is not None or response._parameters != "{}":
            return None
        if len(response._tensors) != len(facts):
            return None
        for tensor, (name, datatype, shape, gap) in zip(response._tensors, facts):
            array = tensor._array
            if array is None or tensor._shape != shape or tensor._type is not datatype or tensor._name != name:
                return None
            data.append(array)
            if gap:
                data.append(gap)
    return data


def _facts_of(responses: list[AddressedResponse], schema: Schema) -> list[_Facts] | None:
    response = responses[0][1] if responses else None
    if response is None or not response._tensors:
        return None
    facts = []
    wanted = schema.wanted
    for tensor in response._tensors:
        array = tensor._array
        if array is None or tensor._type is BYTES or array.nbytes >= SEGMENT_BYTES:
            return None
        # It has to be left out, with a warning: the general path does that.
        if wanted is not None and tensor._name not in wanted:
            return None
        size = array.nbytes
        facts.append((tensor._name, tensor._type, tensor._shape, PADDING[-size % ALIGNMENT]))
    return facts

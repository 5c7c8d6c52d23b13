"""The worker's codec of whole batches, which travel as one request with one response."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.request import Array, InferRequest, RequestOptions
from naiad.tensor.bytes_codec import decode_bytes, encode_bytes
from naiad.tensor.dtypes import DataType
from naiad.worker.ipc.frame_body import FrameBody, aligned, places_struct
from naiad.worker.ipc.frames import (
    COUNT,
    FLAG_ERROR,
    FLAG_FINAL,
    IN_PARTS,
    REQUEST,
    RESPONSE_HEAD,
    RESPONSES,
    SEGMENT_BYTES,
)
from naiad.worker.ipc.schemas import Schema, Schemas
from naiad.worker.ipc.segments import Segment
from naiad.worker.ipc.types import Locate, Place
from naiad.worker.runtime.writer import FrameWriter

Join = Callable[[list[Place], int], Place]
"""Puts parts with so many bytes together; the list is emptied, so that they can be released."""


def read_whole(payload: bytearray, schemas: Schemas, locate: Locate, spec: ModelSpec, join: Join) -> Batch:
    """The batch that an ``EXECUTE`` frame holds, with the inputs of all its requests in those of one."""
    _, schema_number, _, _ = REQUEST.unpack_from(payload, COUNT.size)
    schema = schemas[schema_number]
    first = COUNT.size + REQUEST.size
    described = schema.places.unpack_from(payload, first)
    places = _located(payload, described, aligned(first + schema.places.size), locate, join)
    inputs = {
        name: _array(place, spec.inputs[name].dtype, shape, f"input '{name}' of model '{spec.name}'")
        for (name, _, shape), place in zip(schema.tensors, places, strict=True)
    }
    return Batch([InferRequest(RequestOptions(schema.outputs, _rows(schema, spec)), inputs)])


def _located(payload: bytearray, described: tuple[int, ...], data: int, locate: Locate, join: Join) -> Iterator[Place]:
    for at in range(0, len(described), 4):
        count, kind, offset, size = place = described[at : at + 4]
        if kind == IN_PARTS:
            parts = places_struct(count).unpack_from(payload, data + offset)
            yield join(list(locate(payload, parts, data)), size)
        else:
            yield from locate(payload, place, data)


def _rows(schema: Schema, spec: ModelSpec) -> int:
    if not spec.max_batch_size or not schema.tensors:
        return 1
    _, _, shape = schema.tensors[0]
    return shape[0]


def _array(place: Place, dtype: DataType, shape: tuple[int, ...], what: str) -> Array:
    buffer, offset, size = place
    if dtype.is_bytes:
        raw = memoryview(buffer).cast("B")[offset : offset + size]
        return decode_bytes(bytes(raw), math.prod(shape), what).reshape(shape)
    found: Array = np.frombuffer(buffer, np.uint8, size, offset).view(dtype.numpy).reshape(shape)
    return found


class BatchResponseWriter(FrameWriter):
    """A frame writer with the responses of whole batches."""

    def __init__(self, connection: socket.socket, look: Callable[[], object]) -> None:
        super().__init__(connection, look)
        # Of the batch that runs, by their addresses.
        self._reserved: dict[int, Segment] = {}

    def reserve(self, size: int) -> Array | None:
        """Memory for an output of ``size`` bytes of the batch that runs, from which it is sent without a copy.

        None for a small output, which travels in the frame, and where the system has no memory to share.
        """
        if size < SEGMENT_BYTES:
            return None
        with self._lock:
            segment = self._segment(size)
        if segment is None:
            return None
        memory = segment.bytes[:size]
        self._reserved[_address(memory)] = segment
        return memory

    def drop(self, references: list[Any]) -> None:
        """Drop references to the server's memory, which is released with the next frame and not for each by itself."""
        with self._lock:
            references.clear()

    def send_results(self, number: int, batch: Batch, spec: ModelSpec) -> None:
        """Send the results of a batch, or its error.

        The batch is emptied before anything is sent, so that the same write releases the segments of its inputs.
        """
        with self._lock:
            frame = self._failure(number, batch.error) if batch.error else self._results_if_fit(number, batch, spec)
            self._return_reserved()
            batch.take_requests()
            batch.results = {}
            # Its traceback refers to the inputs, and back to the batch.
            batch.error = None
            self._write(frame)
        self._flush()

    def send_error(self, number: int, error: NaiadError) -> None:
        """Send the error of a batch that did not run."""
        with self._lock:
            self._write(self._failure(number, error))
        self._flush()

    def _results_if_fit(self, number: int, batch: Batch, spec: ModelSpec) -> bytes:
        try:
            return self._results(number, batch, spec)
        except Exception as error:
            text = f"the outputs of model '{spec.name}' cannot be sent: {type(error).__name__}: {error}"
            return self._failure(number, BackendError(text))

    def _results(self, number: int, batch: Batch, spec: ModelSpec) -> bytes:
        results = batch.results
        payloads = [_payload(array, spec.outputs[name].dtype) for name, array in results.items()]
        # Without datatypes, which the specification fixes.
        key = tuple([(name, array.shape) for name, array in results.items()])
        schema = self._schemas.get(key)
        if schema is None:
            outputs = [[name, spec.outputs[name].dtype.wire, shape] for name, shape in key]
            schema = self._new_schema(key, lambda: {"outputs": outputs, "parameters": {}})
        body = FrameBody(self._segment, COUNT.pack(1, 0), RESPONSE_HEAD.pack(number, schema, FLAG_FINAL, 0, 0))
        for data, size in payloads:
            segment = self._reserved.pop(_address(data), None) if size >= SEGMENT_BYTES else None
            if segment is None:
                body.add(data, size)
            else:
                body.add_lent(segment.number, 0, size)
        return body.frame(RESPONSES, number)

    def _return_reserved(self) -> None:
        """Return the segments to the pool that hold no output that is sent."""
        if self._reserved:
            self.pool.release([segment.number for segment in self._reserved.values()])
            self._reserved.clear()

    def _failure(self, number: int, error: NaiadError) -> bytes:
        # Bytes that are not UTF-8 show up in texts as halves of characters, which the server does not read.
        said = json.dumps({"message": str(error), "code": error.grpc_code}, ensure_ascii=False)
        text = said.encode("utf-8", "replace")
        head = RESPONSE_HEAD.pack(number, 0, FLAG_FINAL | FLAG_ERROR, len(text), 0)
        return FrameBody(self._segment, COUNT.pack(1, 0), head, text).frame(RESPONSES, number)


def _address(data: Any) -> int:
    """Where an array lies in memory; 0 for anything else."""
    return int(data.__array_interface__["data"][0]) if isinstance(data, np.ndarray) else 0


def _payload(array: Array, dtype: DataType) -> tuple[Any, int]:
    if dtype.is_bytes:
        raw = encode_bytes(array)
        return raw, len(raw)
    if not array.size:
        return b"", 0
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8), array.nbytes

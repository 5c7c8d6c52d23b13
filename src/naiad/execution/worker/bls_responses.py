"""Responses to the calls of a model in a process, as frames of ``naiad.worker.ipc.frames``: the server's side."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson

from naiad.errors import InternalError, NaiadError, UnavailableError
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.writer import BatchWriter, frame
from naiad.request import NO_PARAMETERS, Array, InferRequest, Outputs, request_label
from naiad.telemetry.logs.json_lines import REQUEST_ID
from naiad.tensor.dtypes import BY_NUMPY
from naiad.tensor.packed_bytes import serialised
from naiad.worker.ipc.frames import CALL_RESPONSE, FLAG_EMPTY, FLAG_ERROR, RESPONSE_HEAD

logger = logging.getLogger("naiad")


class CallResponses:
    """Writes responses to calls, which are known by their numbers.

    Args:
        writer: writes schemas and segments for the worker.
        send: sends frames to the worker.
    """

    __slots__ = ("_send", "_writer")

    def __init__(self, writer: BatchWriter, send: Callable[[list[OutgoingFrame]], None]) -> None:
        self._writer = writer
        self._send = send

    def send_error(self, number: int, error: NaiadError, flags: int, began: str = "") -> None:
        """Send an error, whose text begins with ``began``."""
        text = orjson.dumps({"message": f"{began}{error}", "code": error.grpc_code})
        head = RESPONSE_HEAD.pack(number, 0, flags | FLAG_ERROR, len(text), 0)
        self._send([(frame(CALL_RESPONSE, number, head + text), -1)])

    def send_empty(self, number: int, flags: int) -> None:
        """Send a response without outputs."""
        self._send([(frame(CALL_RESPONSE, number, RESPONSE_HEAD.pack(number, 0, flags | FLAG_EMPTY, 0, 0)), -1)])

    def send_outputs(self, number: int, request: InferRequest, outputs: Mapping[str, Array], flags: int) -> None:
        """Send the outputs that ``request`` asked for, or an error when they cannot be written."""
        frames: list[OutgoingFrame] = []
        try:
            self._write(number, request, outputs, flags, frames)
        except Exception as error:
            # The writer counts on the worker knowing the schemas and segments that were announced.
            self._send(frames)
            self.send_error(number, _not_written(request, error), flags)
            return
        self._send(frames)

    def _write(
        self,
        number: int,
        request: InferRequest,
        outputs: Mapping[str, Array],
        flags: int,
        frames: list[OutgoingFrame],
    ) -> None:
        # A model may return more outputs than the call wants.
        found = [(name, outputs[name]) for name in request.options.outputs if name in outputs]
        parameters = outputs.parameters if isinstance(outputs, Outputs) else NO_PARAMETERS
        listed = [(name, BY_NUMPY[array.dtype].wire, array.shape) for name, array in found]
        described = orjson.dumps({"outputs": listed, "parameters": dict(parameters)})
        self._writer.make_room(frames)
        head = RESPONSE_HEAD.pack(number, self._writer.schema(described, frames), flags, 0, 0)
        body = self._writer.body(frames, head)
        try:
            for _, array in found:
                raw = _bytes_of(array)
                body.add(raw, len(raw))
            frames.append((body.frame(CALL_RESPONSE, number), -1))
        except BaseException:
            # The worker releases only segments that a frame has named.
            self._writer.pool.release(body.taken)
            raise


def _not_written(request: InferRequest, error: Exception) -> NaiadError:
    label = request_label(request.id)
    if isinstance(error, (OSError, MemoryError)):
        return UnavailableError(f"{label}there is no memory for a response to a call: {error}")
    logger.error("%sa response to a call could not be written", label, exc_info=error, extra={REQUEST_ID: request.id})
    return InternalError(f"{label}a response to a call could not be written, see the log of the server")


def _bytes_of(array: Array) -> Any:
    if array.dtype == np.object_:
        return serialised(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""

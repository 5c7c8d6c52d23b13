"""The writer of a worker's frames: responses, calls of other models, and everything small."""

from __future__ import annotations

import json
import socket
import threading
from array import array
from collections import deque
from typing import Any, Callable, Iterable, Mapping, Sequence

from ..api.inference_response import InferenceResponse
from ..api.tensor import Tensor
from ..ipc.client_file import RegionError
from ..ipc.client_memory import Parts, Regions
from ..ipc.errors import GRPC_CODES, FailedError, ServerGoneError, TritonError, TritonModelException, describe
from ..ipc.frame_body import PADDING, FrameBody
from ..ipc.frames import (
    ALIGNMENT,
    CALL,
    COUNT,
    DROP_SEGMENT,
    FLAG_EMPTY,
    FLAG_ERROR,
    FLAG_FINAL,
    FLAG_OWN,
    FORGET_SCHEMAS,
    FRAME,
    IN_REGION,
    LOG,
    NUMBERS,
    PLACE,
    RELEASE,
    REQUEST,
    RESPONSE,
    RESPONSE_HEAD,
    RESPONSES,
    RESPONSES_UNIFORM,
    SCHEMA,
    SEGMENT,
)
from ..ipc.schemas import Schema, call_schema, response_schema
from ..ipc.segments import Segment, SegmentPool, ServerSegments
from .in_place_outputs import InPlaceOutputs
from .uniform_batch import AddressedResponse, uniform_data

MAX_SCHEMAS = 2048
MAX_SCHEMA_BYTES = 1 << 22
"""Of all schemas together: parameters are part of them, and may be long and never the same."""
MAX_ID_BYTES = 0xFFFF


class FrameWriter:
    """Writes frames, one thread at a time.

    Args:
        look: reads what the server has sent, without waiting. Called before a new segment is made, since the server may
            have released one.
        dropped: gets the outputs of a response if some of them are not sent.
        regions: shared memory of the server's clients.

    Attributes:
        pool: the segments of this side.
        inputs: those of the server, and what it has lent.
    """

    def __init__(
        self,
        connection: socket.socket,
        look: Callable[[], object],
        dropped: Callable[[Sequence[Tensor]], object] | None = None,
        regions: Regions | None = None,
    ) -> None:
        self._regions = regions or Regions()
        self.pool = SegmentPool()
        self._connection = connection
        self._look = look
        self._dropped = dropped
        self._lock = threading.Lock()
        self._schemas: dict[Any, int] = {}
        self._schema_bytes = 0
        # Frames to be written before the next: schemas that it uses.
        self._fresh: list[bytes] = []
        # What may be sent from anywhere, also by a thread that is interrupted while it holds the lock.
        self._posted: deque[bytes] = deque()
        self._released: deque[int] = deque()
        self.inputs = ServerSegments(self.release)
        self._segments_fail = False
        self.sent_bytes = 0
        # What the last error that speaks of CUDA says: the process may have lost its GPU.
        self.cuda_error = ""

    # Frames without tensors

    def post(self, frame: bytes) -> None:
        """Send a frame as soon as possible, without waiting for another thread's writing."""
        self._posted.append(frame)
        self._flush()

    def post_json(self, kind: int, number: int, content: Mapping[str, Any]) -> None:
        """Post a frame with a JSON payload."""
        self.post(json_frame(kind, number, content))

    def release(self, segment: int) -> None:
        """Release a segment of the server. May run in any thread, also while that holds the lock."""
        self._released.append(segment)
        self._flush()

    def _flush(self) -> None:
        """Write posted frames, unless another thread (or this one, further up) writes: it then does so at its end."""
        # A loop: another thread may post between the write and the release of the lock, and finds it taken.
        while (self._posted or self._released) and self._lock.acquire(False):
            try:
                self._write(b"")
            finally:
                self._lock.release()

    def close(self) -> None:
        """Unmap the segments of this side, when the last response is written."""
        with self._lock:
            self.pool.close()
            # They are its owner's, which refers to this writer.
            self._look, self._dropped = _nothing, None

    # Responses

    def respond_to_batch(
        self, batch: int, responses: list[AddressedResponse], forget: Callable[[], object], schema: Schema | None = None
    ) -> None:
        """Respond to the requests of a batch and end it.

        ``responses`` is emptied and ``forget`` called before anything is sent: both drop the tensors of the batch,
        whose segments are then released in the same write.

        Args:
            schema: the common schema of the requests, if they have one and all responses are among ``responses``.
        """
        with self._lock:
            frame = None if schema is None else self._uniform_frame(batch, responses, schema)
            if frame is not None:
                responses.clear()
                forget()
            else:
                frame = self._batch_frame(batch, responses, forget)
            self._write(frame)
        # For threads that posted meanwhile and found the lock taken.
        self._flush()

    def _batch_frame(self, batch: int, responses: list[AddressedResponse], forget: Callable[[], object]) -> bytes:
        """The frame for any responses, and what is to be sent behind it; drops the batch."""
        body = FrameBody(self._segment, COUNT.pack(len(responses), 0))
        in_place = InPlaceOutputs(self.inputs, self._released)
        self._encode_all(body, responses, in_place)
        frame = b"" if in_place else body.frame(RESPONSES, batch)
        responses.clear()
        forget()
        if in_place:
            behind = in_place.settle(body)
            frame = body.frame(RESPONSES, batch) + behind
        return frame

    def _encode_all(self, body: FrameBody, responses: list[AddressedResponse], in_place: InPlaceOutputs) -> None:
        # A function of its own, whose variables refer to no tensor once it has returned.
        for request, response, flags in responses:
            wanted = request._schema.wanted if request._schema else None
            self._encode(body, request._number, response, wanted, flags, request._parts, in_place)

    def _uniform_frame(self, batch: int, responses: list[AddressedResponse], schema: Schema) -> bytes | None:
        """The frame for uniform responses; None for others."""
        data = uniform_data(responses, schema)
        if data is None:
            return None
        response = responses[0][1]
        number = self._schema_number(response._tensors, "{}") if response is not None else 0
        described = COUNT.pack(len(responses), number)
        body = b"".join(data)
        head = FRAME.pack(RESPONSES_UNIFORM, ALIGNMENT + len(body), batch)
        return b"".join((head, described, PADDING[-len(described) % ALIGNMENT], body))

    def respond(
        self,
        number: int,
        response: InferenceResponse | None,
        wanted: Iterable[str] | None,
        flags: int,
        parts: Parts | None = None,
    ) -> None:
        """Send one response, or its flags alone. ``parts``: where outputs are wanted in shared memory of clients."""
        with self._lock:
            body = FrameBody(self._segment)
            self._encode(body, number, response, wanted, flags, parts)
            self._write(body.frame(RESPONSE, number))
        self._flush()

    def _encode(
        self,
        body: FrameBody,
        number: int,
        response: InferenceResponse | None,
        wanted: Any | None,
        flags: int,
        parts: Parts | None,
        in_place: InPlaceOutputs | None = None,
    ) -> None:
        if response is None:
            body.heads.append(RESPONSE_HEAD.pack(number, 0, flags | FLAG_EMPTY, 0, 0))
            return
        error = response._error
        if error is None:
            try:
                tensors = self._pruned(response._tensors, wanted)
                # All payloads first: nothing of a response that fails may have entered the frame.
                payloads = [t._payload() for t in tensors]
                written = None if parts is None else self._written(parts, tensors, payloads)
            except RegionError as problem:
                error = problem.caller_error
            except Exception as problem:
                error = FailedError(f"Failed to read the output tensors of a response: {describe(problem)}")
            else:
                schema = self._schema_number(tensors, response._parameters)
                body.heads.append(RESPONSE_HEAD.pack(number, schema, flags, 0, 0))
                if written is None:
                    for data, size in payloads:
                        if in_place is None or not in_place.add(body, data, size):
                            body.add(data, size)
                    return
                for (data, size), place in zip(payloads, written):
                    if place is None:
                        body.add(data, size)
                    else:
                        body.heads.append(place)
                return
        text = error_json(error)
        if "cuda" in error.message().lower():
            self.cuda_error = error.message()
        flags |= FLAG_ERROR if isinstance(error, FailedError) else FLAG_ERROR | FLAG_OWN
        body.heads.append(RESPONSE_HEAD.pack(number, 0, flags, len(text), 0))
        body.heads.append(text)

    def _written(
        self, parts: Parts, tensors: Sequence[Tensor], payloads: Sequence[tuple[Any, int]]
    ) -> list[bytes | None]:
        """Write outputs to the regions where they are wanted; the place of each output, None for the others."""
        places: list[bytes | None] = []
        for tensor, (data, size) in zip(tensors, payloads):
            part = parts.get(tensor._name)
            if part is None:
                places.append(None)
                continue
            self._regions.write(part, tensor._name, data, size)
            places.append(PLACE.pack(part[0], IN_REGION, part[1], size))
        return places

    def _pruned(self, tensors: list[Tensor], wanted: Any | None) -> list[Tensor]:
        """The tensors that the request asked for."""
        if wanted is None:
            return tensors
        for tensor in tensors:
            if tensor._name not in wanted:
                if self._dropped is not None:
                    self._dropped(tensors)
                return [t for t in tensors if t._name in wanted]
        return tensors

    def _schema_number(self, tensors: Sequence[Tensor], parameters: str) -> int:
        key: Any
        if len(tensors) == 1:
            # The most frequent case, without a tuple in a tuple.
            only = tensors[0]
            key = (only._name, only._type, only._shape, parameters)
        elif tensors or parameters != "{}":
            key = (tuple([(t._name, t._type, t._shape) for t in tensors]), parameters)
        else:
            return 0
        number = self._schemas.get(key)
        if number is None:
            number = self._new_schema(key, lambda: response_schema(_described(tensors), parameters))
        return number

    def _new_schema(self, key: Any, content: Callable[[], Mapping[str, Any]]) -> int:
        # Schemas are counted anew only at the beginning of a frame, whose earlier parts may use them.
        number = self._schemas[key] = len(self._schemas) + 1
        described = json_frame(SCHEMA, number, content())
        self._schema_bytes += len(described)
        self._fresh.append(described)
        return number

    def _segment(self, size: int) -> Segment | None:
        """A segment that the server knows; None when the system has no memory that could be shared."""
        # A released segment costs no new pages, so the release that may lie unread is read first.
        if self.pool.is_waiting and not self.pool.has_free(size):
            self._look()
        try:
            segment = self.pool.take(size)
        except OSError as error:
            self._warn_once(error)
            return None
        if segment.descriptor >= 0:
            self._introduce(segment)
        self.sent_bytes += size
        return segment

    def _introduce(self, segment: Segment) -> None:
        frame = FRAME.pack(SEGMENT, 8, segment.number) + segment.size.to_bytes(8, "little")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [segment.descriptor]).tobytes())]
        try:
            # At once, ahead of the frame at hand: the descriptor belongs to the first byte of this one.
            sent = self._connection.sendmsg([frame], rights)
            # After a short write the descriptor is on its way already.
            self._connection.sendall(frame[sent:])
        except OSError as error:
            raise ServerGoneError(f"A segment could not be sent to the server: {error}") from error
        # The mapping stays without it, and a process may have only so many open files.
        segment.close_descriptor()

    def _warn_once(self, error: OSError) -> None:
        if not self._segments_fail:
            self._segments_fail = True
            message = f"no shared memory for large tensors ({error}): they travel over the socket, which costs copies"
            place = {"file": __file__, "line": 0, "once": "segments"}
            # Not ``post``: the lock is held, and the write of the frame at hand takes it along.
            self._posted.append(json_frame(LOG, 0, {"level": "WARNING", "message": message, **place}))

    def trim(self) -> None:
        """Drop segments that were free for a while, unless another thread is writing."""
        # The writer uses the pool; the next round trims what this one leaves.
        if not self._lock.acquire(False):
            return
        try:
            for number in self.pool.trim():
                self._posted.append(FRAME.pack(DROP_SEGMENT, 0, number))
        finally:
            self._lock.release()
        self._flush()

    # Calls

    def call(self, number: int, head: Mapping[str, Any], tensors: Sequence[Tensor], options: Mapping[str, Any]) -> None:
        """Send a call of another model."""
        text = json.dumps(head).encode()
        request_id = head["id"].encode()
        if len(request_id) > MAX_ID_BYTES:
            raise TritonModelException(
                f"The id of a request may have {MAX_ID_BYTES} bytes, found one of {len(request_id)} bytes"
            )
        # Before the lock is taken: encoding may take long, and may fail.
        payloads = [t._payload() for t in tensors]
        with self._lock:
            key = ("call", tuple([(t._name, t._type, t._shape) for t in tensors]), json.dumps(options, sort_keys=True))
            schema = self._schemas.get(key)
            if schema is None:
                schema = self._new_schema(key, lambda: call_schema(_described(tensors), options))
            body = FrameBody(
                self._segment,
                NUMBERS.pack(len(text)),
                NUMBERS.pack(0),
                text,
                REQUEST.pack(0, schema, len(request_id), 0),
            )
            for data, size in payloads:
                body.add(data, size)
            body.heads.append(request_id)
            self._write(body.frame(CALL, number))
        self._flush()

    # Writing; the lock is held

    def _write(self, frame: bytes) -> None:
        """Send the frames that are due, then this one."""
        try:
            if self._fresh or self._posted or self._released:
                frame = self._with_due(frame)
            self._connection.sendall(frame)
            self.sent_bytes += len(frame)
        except OSError as error:
            raise ServerGoneError(f"The connection to the server failed: {error}") from error
        # Behind the frame, which may use any of them; the server hears of it before the next.
        if len(self._schemas) > MAX_SCHEMAS or self._schema_bytes > MAX_SCHEMA_BYTES:
            self._schemas.clear()
            self._schema_bytes = 0
            self._fresh.append(FRAME.pack(FORGET_SCHEMAS, 0, 0))

    def _with_due(self, frame: bytes) -> bytes:
        """The frame behind all frames that are due, in one piece; the frame alone when there is no memory for that."""
        due = self._due()
        try:
            return b"".join((*due, frame))
        except MemoryError:
            # Without these the server could not read what follows, or would wait for ever.
            for earlier in due:
                self._connection.sendall(earlier)
            return frame

    def _due(self) -> list[bytes]:
        due, self._fresh = self._fresh, []
        while self._posted:
            due.append(self._posted.popleft())
        numbers = []
        while self._released:
            numbers.append(NUMBERS.pack(self._released.popleft()))
        if numbers:
            due.append(FRAME.pack(RELEASE, NUMBERS.size * len(numbers), 0))
            due += numbers
        return due


def _nothing() -> None:
    """Stands in for a writer's owner once it is closed."""


def json_frame(kind: int, number: int, content: Mapping[str, Any]) -> bytes:
    """A frame with a JSON payload."""
    payload = _json(content)
    return FRAME.pack(kind, len(payload), number) + payload


def error_json(error: TritonError) -> bytes:
    """An error as a response carries it."""
    return _json({"message": error.message(), "code": GRPC_CODES[error.code()]})


def error_frame(number: int, error: TritonError) -> bytes:
    """The ``RESPONSE`` frame of an error that ends a request."""
    text = error_json(error)
    head = RESPONSE_HEAD.pack(number, 0, FLAG_FINAL | FLAG_ERROR, len(text), 0)
    return FRAME.pack(RESPONSE, len(head) + len(text), number) + head + text


def _json(content: Mapping[str, Any]) -> bytes:
    """JSON as the server reads it. It takes no half of a character, which Python has for bytes that are not UTF-8."""
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def _described(tensors: Sequence[Tensor]) -> Any:
    return tuple((t._name, t._type, t._shape) for t in tensors)

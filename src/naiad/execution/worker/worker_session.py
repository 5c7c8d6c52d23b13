"""The server's side of one worker process: codecs, segments, calls, control requests. The next worker gets another."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, ClassVar

import orjson

from naiad.config.spec import ModelSpec
from naiad.execution.model_directory import ModelDirectory
from naiad.execution.worker.bls import BlsCalls
from naiad.execution.worker.channel import WorkerChannel
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.reader import ResponseReader
from naiad.execution.worker.codec.writer import BatchWriter, frame, no_segments
from naiad.execution.worker.control import Content, ControlRequests, ModelControlRequests
from naiad.execution.worker.frame_sender import FrameSender
from naiad.execution.worker.in_flight import InFlightRequests
from naiad.execution.worker.metrics import WorkerMetrics
from naiad.execution.worker.process import MAX_IDS, is_first, log_line
from naiad.execution.worker.readiness import WorkerReadiness
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.worker.ipc.arena import Arena
from naiad.worker.ipc.frames import (
    CALL,
    CANCEL_CALL,
    CONTROL_REQUEST,
    DROP_SEGMENT,
    FORGET_SCHEMAS,
    IS_READY,
    LOG,
    NOTIFICATION,
    NUMBERS,
    PING,
    PONG,
    RELEASE,
    REPLY,
    SCHEMA,
    SEGMENT,
)
from naiad.worker.ipc.lent_memory import LentMemory
from naiad.worker.ipc.segments import ServerSegments, notice

logger = logging.getLogger("naiad")


class WorkerSession:
    """Takes the frames of one worker that are no responses, and keeps what they are about. Belongs to the event loop.

    Args:
        name: of the instance.
        spec: of the model.
        sender: sends frames to the worker.
        requests: those in flight in the worker.
        models: the models that it can call.
        metrics: shows the metrics of the model.
        arena: where large inputs of the model may lie.

    Attributes:
        writer, reader: write batches and read responses.
        calls: what its model has called.
        control: what its model has asked for.
        readiness: whether its model says that it is ready.
        missed_beats: how many signs of life it owes.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        sender: FrameSender,
        requests: InFlightRequests,
        models: ModelDirectory | None,
        metrics: CustomMetrics,
        arena: Arena | None = None,
    ) -> None:
        self._name = name
        self._model = spec.name
        self._sender = sender
        self._requests = requests
        self._released: deque[int] = deque()
        self._segments = ServerSegments(self._released.append)
        self._outputs = None if arena is None else arena.outputs
        self._open_segments: dict[int, LentMemory] = {}
        self.writer = BatchWriter(spec, arena)
        self.reader = ResponseReader(spec, self._segments.open, self.writer.lent_inputs.open)
        self.calls = BlsCalls(
            models, self.writer, self._segments.open, sender.send_all, sender.waiting, requests.trace_of
        )
        self.control = ControlRequests(ModelControlRequests(models), WorkerMetrics(metrics), requests.trace_of)
        self.readiness = WorkerReadiness(name, False)
        self.missed_beats = 0

    def close(self) -> None:
        """Cancel the calls and drop the control requests of its model."""
        self.calls.close()
        self.control.close()
        for number in list(self._open_segments):
            self._drop_segment(number, bytearray())

    # Once a second

    def beat(self) -> None:
        """Ask for a sign of life and for readiness, and drop memory that is not needed."""
        # One open PING is enough: its PONG resets the count.
        if not self.missed_beats:
            self._sender.send(frame(PING, 1))
        self.missed_beats += 1
        self.check_ready()
        self.release_segments()
        for number in self.writer.pool.trim():
            self._sender.send(frame(DROP_SEGMENT, number))
        dropped: list[OutgoingFrame] = []
        self.writer.regions.drop(dropped)
        self.writer.drop_arenas(dropped)
        self._sender.send_all(dropped)
        for what, due in (("memory", notice), ("segments", no_segments)):
            if (text := due.take()) and is_first(what):
                logger.warning("%s", text)

    def check_ready(self) -> None:
        """Ask whether the model is ready, where that is due."""
        if question := self.readiness.beat(monotonic()):
            self._sender.send(question)

    # Segments

    def release_segments(self) -> None:
        """Tell the worker which of its segments nothing refers to any more."""
        if self._released:
            self._sender.send(self._release_frame())

    def release_ahead(self, frames: list[OutgoingFrame]) -> None:
        """Put what ``release_segments`` would send ahead of ``frames``, in one piece with the first of them.

        They are sent next. A write of its own would wake the worker once more.
        """
        if self._released:
            data, descriptor = frames[0]
            frames[0] = self._release_frame() + data, descriptor

    def _release_frame(self) -> bytes:
        released = []
        # The last view of a segment may be dropped in any thread, which only appends to this queue.
        while self._released:
            released.append(NUMBERS.pack(self._released.popleft()))
        return frame(RELEASE, 0, b"".join(released))

    # Frames

    def take(self, kind: int, number: int, payload: bytearray) -> None:
        """Take a frame of the worker; those of a kind that is not known here are dropped."""
        if (handler := self._handlers.get(kind)) is not None:
            handler(self, number, payload)

    def _schema(self, number: int, payload: bytearray) -> None:
        raw = bytes(payload)
        # Schemas of calls and of responses come in the same kind of frame.
        if not self.calls.learn(number, raw):
            self.reader.learn(number, raw)

    def _forget_schemas(self, number: int, payload: bytearray) -> None:
        self.reader.forget()
        self.calls.forget()

    def _segment(self, number: int, payload: bytearray) -> None:
        if (channel := self._sender.channel) is None:
            return
        descriptor, size = channel.take_descriptor(), int.from_bytes(payload, "little")
        if self._outputs is None or not self._outputs.has_room:
            self._segments.add(number, descriptor, size)
            return
        memory = self._open_segments[number] = LentMemory(descriptor, size)
        if memory.bytes is not None:
            self._segments.add_mapped(number, memory.bytes)
        self._outputs.add(memory)

    def _drop_segment(self, number: int, payload: bytearray) -> None:
        self._segments.drop(number)
        if self._outputs is not None and (memory := self._open_segments.pop(number, None)) is not None:
            self._outputs.drop(memory)

    def _release(self, number: int, payload: bytearray) -> None:
        self.writer.release([n for (n,) in NUMBERS.iter_unpack(payload)])

    def _log(self, number: int, payload: bytearray) -> None:
        log_line(self._name, orjson.loads(payload), self._model, self._requests.open_ids(MAX_IDS))

    def _pong(self, number: int, payload: bytearray) -> None:
        self.missed_beats = 0

    def _is_ready(self, number: int, payload: bytearray) -> None:
        self.readiness.take(number, orjson.loads(payload))

    def _control_request(self, number: int, payload: bytearray) -> None:
        self.control.handle(orjson.loads(payload), partial(self._reply, self._sender.channel, number))

    def _reply(self, channel: WorkerChannel | None, number: int, content: Content) -> None:
        # The reply may come when the worker that asked is gone and another has taken its place.
        if channel is not None and channel is self._sender.channel:
            channel.send(frame(REPLY, number, orjson.dumps(content)))

    def _notification(self, number: int, payload: bytearray) -> None:
        self.control.notify(orjson.loads(payload))

    def _call(self, number: int, payload: bytearray) -> None:
        self.calls.call(number, payload)
        # The worker may wait for segments that tensors of earlier calls lie in.
        self.release_segments()

    def _cancel_call(self, number: int, payload: bytearray) -> None:
        self.calls.cancel(number)

    # A table of the class: one of the session would refer back to it.
    _handlers: ClassVar[dict[int, Callable[[Any, int, bytearray], object]]] = {
        SCHEMA: _schema,
        FORGET_SCHEMAS: _forget_schemas,
        SEGMENT: _segment,
        DROP_SEGMENT: _drop_segment,
        RELEASE: _release,
        LOG: _log,
        PONG: _pong,
        IS_READY: _is_ready,
        CONTROL_REQUEST: _control_request,
        NOTIFICATION: _notification,
        CALL: _call,
        CANCEL_CALL: _cancel_call,
    }

"""The frames of the server, each taken to where it belongs, in whichever thread reads from the connection."""

from __future__ import annotations

import json
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Tuple

from ..api.bls import read_response
from ..api.control import PendingReply
from ..ipc import frames as protocol
from ..ipc.client_memory import Regions
from ..ipc.execute_frame import segments_of
from ..ipc.frame_body import locate
from ..ipc.mmap import mapped_alone
from ..ipc.schemas import Schemas, read_schema
from .flow_control import PausedRequests

if TYPE_CHECKING:
    from ..api.inference_response import InferenceResponse
    from ..ipc.reader import Channel, Waiter
    from ..ipc.types import Locate
    from .writer import FrameWriter

# Requests that end do not leave the table, so it needs a bound.
MAX_CANCELLED = 4096
_BATCHES = frozenset((protocol.EXECUTE_UNIFORM, protocol.EXECUTE))
_WORK = _BATCHES | {protocol.INIT, protocol.FINALIZE}
Work = Tuple[int, int, bytearray, Schemas]
"""Kind, number and payload of a frame for the main thread, and the schemas that were valid when it came."""


class Inbox:
    """Handles frames, and stores what they announce.

    Attributes:
        inbox: frames for the main thread.
        cancelled: numbers of requests that their callers cancelled; the oldest are dropped when there are many.
        calls: take the responses to the calls under way, by number.
        replies: control requests without a reply yet, by number.
        locate: finds the bytes of tensors in a frame's payload and in the server's segments.
        paused: requests whose callers read no responses for now.
    """

    def __init__(
        self,
        channel: Channel,
        out: FrameWriter,
        work_arrived: Callable[[], object],
        check_ready: Callable[[int], object],
        regions: Regions | None = None,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        self.schemas: Schemas = {}
        self.inbox: deque[Work] = deque()
        self.cancelled: dict[int, None] = {}
        self.calls: dict[int, Callable[[InferenceResponse | None, bool], object]] = {}
        self.replies: dict[int, PendingReply] = {}
        self.paused = PausedRequests(look, self.cancelled.__contains__)
        # The numbers of batches in the inbox that need not run.
        self._skipped: set[int] = set()
        self._channel = channel
        self._out = out
        self._segments = out.inputs
        self.locate: Locate = partial(locate, self._segments.open)
        self._regions = regions or Regions()
        self._work_arrived = work_arrived
        self._check_ready = check_ready
        # Of the other kinds: frames of ``_WORK`` wait for the main thread, these are handled while they are read.
        self._handlers: dict[int, Callable[[int, bytearray], object]] = {
            protocol.CANCEL: self._cancel,
            protocol.PAUSE: self._pause,
            protocol.RESUME: self._resume,
            protocol.PING: self._ping,
            protocol.SCHEMA: self._schema,
            protocol.FORGET_SCHEMAS: self._forget_schemas,
            protocol.SEGMENT: self._segment,
            protocol.DROP_SEGMENT: self._drop_segment,
            protocol.ARENA: self._arena,
            protocol.DROP_ARENA: self._drop_arena,
            protocol.RELEASE: self._release,
            protocol.CALL_RESPONSE: self._call_response,
            protocol.REPLY: self._deliver_reply,
            protocol.CHECK_READY: self._take_ready_check,
            protocol.REGION: self._region,
            protocol.DROP_REGION: self._drop_region,
            protocol.SKIP: self._skip,
        }

    def handle(self, kind: int, number: int, payload: bytearray) -> None:
        """Handle one frame. Runs in the thread that reads, one at a time."""
        if kind in _WORK:
            self.inbox.append((kind, number, payload, self.schemas))
            self._work_arrived()
            return
        handler = self._handlers.get(kind)
        if handler is None:
            raise ValueError(f"The server sent a frame of kind {kind}, which version {protocol.VERSION} does not know")
        handler(number, payload)

    def close(self) -> None:
        """Unmap the server's segments, when no batch needs them any more; no frame is handled after this."""
        self._segments.close()
        # They refer to this inbox.
        self._handlers.clear()

    def _cancel(self, number: int, payload: bytearray) -> None:
        if len(self.cancelled) >= MAX_CANCELLED:
            self.cancelled.pop(next(iter(self.cancelled)))
        self.cancelled[number] = None
        # Nobody resumes a cancelled request: a thread that waits to send for it has to end.
        self.paused.resume(number)

    def _skip(self, number: int, payload: bytearray) -> None:
        # Only noted: the main thread takes frames out, and may have begun with this one.
        waiting = {work[1] for work in tuple(self.inbox) if work[0] in _BATCHES}
        self._skipped = (self._skipped | {number}) & waiting

    def next(self, waiter: Waiter) -> Work:
        """Wait in the main thread for its next frame."""
        if self.inbox:
            # What has waited here may have been given up meanwhile.
            self._channel.poll()
        while (work := self.take()) is None:
            self._channel.wait_until(self.inbox.__len__, waiter)
        return work

    def take(self) -> Work | None:
        """The next frame for the main thread, without batches that need not run; None when there is none."""
        while self.inbox:
            work = self.inbox.popleft()
            if not self._release_skipped(work):
                return work
        return None

    def _release_skipped(self, work: Work) -> bool:
        """Release the memory of a frame that was taken out, if it is a batch that need not run; False if it is not."""
        kind, number, payload, schemas = work
        if number not in self._skipped or kind not in _BATCHES:
            return False
        if kind == protocol.EXECUTE:
            for segment in segments_of(payload, schemas):
                self._out.release(segment)
        return True

    def _pause(self, number: int, payload: bytearray) -> None:
        self.paused.pause(number, int.from_bytes(payload[:4], "little") / 1000)

    def _resume(self, number: int, payload: bytearray) -> None:
        self.paused.resume(number)

    def _ping(self, number: int, payload: bytearray) -> None:
        # Also by the thread that only looks: a busy model still gives a sign of life.
        self._out.post(protocol.FRAME.pack(protocol.PONG, 0, number))

    def _schema(self, number: int, payload: bytearray) -> None:
        self.schemas[number] = read_schema(payload)

    def _forget_schemas(self, number: int, payload: bytearray) -> None:
        # A new table: frames in the inbox still need the old one.
        self.schemas = {}

    def _segment(self, number: int, payload: bytearray) -> None:
        self._segments.add(number, self._channel.take_descriptor(), int.from_bytes(payload[:8], "little"))

    def _arena(self, number: int, payload: bytearray) -> None:
        size = int.from_bytes(payload[:8], "little")
        self._segments.add_arena(number, mapped_alone(self._channel.take_descriptor(), size))

    def _drop_arena(self, number: int, payload: bytearray) -> None:
        self._segments.drop_arena(number)

    def _drop_segment(self, number: int, payload: bytearray) -> None:
        self._segments.drop(number)

    def _region(self, number: int, payload: bytearray) -> None:
        self._regions.add(number, payload.decode("utf-8", "replace"), self._channel.take_descriptor())

    def _drop_region(self, number: int, payload: bytearray) -> None:
        self._regions.drop(number)

    def _release(self, number: int, payload: bytearray) -> None:
        self._out.pool.release([n for (n,) in protocol.NUMBERS.iter_unpack(payload)])

    def _call_response(self, number: int, payload: bytearray) -> None:
        response, final = read_response(self.schemas, self.locate, payload)
        deliver = self.calls.pop(number, None) if final else self.calls.get(number)
        if deliver is not None:
            deliver(response, final)

    def _deliver_reply(self, number: int, payload: bytearray) -> None:
        pending = self.replies.pop(number, None)
        if pending is not None:
            content: Any = json.loads(payload)
            pending.deliver(content)

    def _take_ready_check(self, number: int, payload: bytearray) -> None:
        self._check_ready(number)

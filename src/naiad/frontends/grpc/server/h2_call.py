"""One gRPC call on a stream of our own HTTP/2: from the data of its request to the frames of its response.

The way of a small unary call is ``data`` -> the method's handler -> ``reply``, and it is kept free of anything else.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from naiad.errors import NaiadError
from naiad.frontends.grpc.rpc.call import Body, CallOwner, Receiver, Streaming, Unary
from naiad.frontends.grpc.server.message_assembly import MessageAssembly, OffLoopRunner
from naiad.frontends.inference.offload import OFF_LOOP_BYTES
from naiad.wire.compression import compress
from naiad.wire.grpc.call_head import NO_TIMEOUT, CallHead
from naiad.wire.grpc.compression import IDENTITY, LEVELS
from naiad.wire.grpc.messages import PREFIX_BYTES, prefix
from naiad.wire.grpc.responses import closing, only, opening, plain_http, whole_response
from naiad.wire.grpc.status import INTERNAL_FAILURE, NO_MESSAGE, STOPPING, Status
from naiad.wire.http2.stream import BUSY, FIRST_FREE_FLAG, HEADERS_SENT, LOCAL_CLOSED, PAUSED, REMOTE_CLOSED, Stream

if TYPE_CHECKING:
    from naiad.frontends.grpc.rpc.limits import GrpcLimits
    from naiad.frontends.grpc.server.state import GrpcService
    from naiad.wire.http2.connection import Http2Connection
    from naiad.wire.http2.headers import Http2RequestHead

log = logging.getLogger(__name__)

_TIMED: Final = FIRST_FREE_FLAG
_ENDED: Final = FIRST_FREE_FLAG << 1
_COMPRESSES: Final = FIRST_FREE_FLAG << 2
_DELIVERED: Final = FIRST_FREE_FLAG << 3
_PIECEMEAL: Final = FIRST_FREE_FLAG << 4
_NO_CALL: Final = FIRST_FREE_FLAG << 5

CONGESTED_BYTES: Final = 1 << 20
MIN_COMPRESSED_BYTES: Final = 256
"""Smaller responses do not get smaller."""

_unpack_prefix = prefix.unpack_from


class CallPeer(OffLoopRunner, Protocol):
    """The connection of a call.

    Attributes:
        turned_away: new calls are refused, because the server stops.
        lost: the transport is gone.
        patience: seconds without an event after which the listener's sweep looks at the connection.
    """

    turned_away: bool
    lost: bool
    patience: int

    @property
    def service(self) -> GrpcService:
        """The state that all connections of the listener share."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back in the next turn of the loop."""


class RpcRoute:
    """The target of a request head, found once for all requests with that head.

    Attributes:
        handle: of a unary method, who takes the message; None for others.
        method: None when there is no such method, or the head is wrong.
        flags: what a call begins with.
        longest: bytes of a request message that is taken the short way.
    """

    __slots__ = ("flags", "handle", "head", "level", "longest", "method")

    def __init__(self, head: CallHead, method: Unary | Streaming | None, limits: GrpcLimits) -> None:
        self.head = head
        self.longest = limits.max_message_bytes
        self.method = method if head.http_status == 200 and not head.status else None
        self.handle = self.method.handle if isinstance(self.method, Unary) else None
        self.level = LEVELS.get(limits.compression_level, 0)
        self.flags = 0
        if head.timeout_ns != NO_TIMEOUT:
            self.flags |= _TIMED
        if self.level and method is not None and method.compressed and head.answer_encoding != IDENTITY:
            self.flags |= _COMPRESSES


class H2Call(Stream):
    """A ``Call`` on a stream. See ``frontends/grpc/rpc/call.py`` for what services may rely on."""

    __slots__ = (
        "_closing",
        "_core",
        "_incoming",
        "_outbox",
        "_outboxed",
        "_receiver",
        "_route",
        "on_drained",
        "owner",
        "peer",
        "tick",
    )

    # Set only where they are needed.
    _receiver: Receiver | None
    _outbox: deque[tuple[Sequence[Any], int]]
    _outboxed: int
    _closing: bytes | None
    on_drained: Callable[[], None] | None
    tick: int

    def __init__(self, peer: CallPeer, core: Http2Connection, stream_id: int, head: Http2RequestHead) -> None:
        # Not through super(): one call less for every request.
        self.id = stream_id
        self.credit = self.granted = self.received = self.queued_bytes = 0
        self.queue = self.trailers = None
        self.owner: CallOwner | None = None
        self.peer = peer
        self._core = core
        self._route: RpcRoute = head.route
        self._incoming: MessageAssembly | None = None
        self.flags = flags = self._route.flags
        if flags or self._route.handle is None or peer.turned_away:
            self._begin_slowly()

    def _begin_slowly(self) -> None:
        """A call that has a deadline, or is not for a unary method that exists."""
        route, head = self._route, self._route.head
        timed = self.flags & _TIMED
        self.flags &= ~_TIMED
        if self.flags & _COMPRESSES:
            self._outbox = deque()
            self._outboxed = 0
            self._closing = None
        if head.http_status != 200:
            # Answered once the request is whole: some HTTP clients fail when the response comes first.
            self.flags |= _NO_CALL
        elif self.peer.turned_away:
            self.finish(Status.UNAVAILABLE, STOPPING)
        elif head.status:
            self.finish(head.status, head.text)
        elif route.method is None:
            self.finish(Status.UNIMPLEMENTED)
        else:
            if timed:
                self.peer.service.deadlines.add(self, head.timeout_ns)
                self.flags |= _TIMED
            if isinstance(route.method, Streaming):
                self._open(route.method)

    def _open(self, method: Streaming) -> None:
        self.on_drained = None
        try:
            self._receiver = method.open(self)
        except Exception:
            self._handler_failed()
            return
        if not self.flags & _ENDED:
            self.owner = self._receiver

    # What the connection tells

    def data(self, buffer: bytearray, start: int, end: int, ended: bool) -> None:
        # The usual call: one uncompressed message, whole in the first data, needs no assembly.
        if ended and self._incoming is None and end - start >= PREFIX_BYTES and not self.flags & _ENDED:
            route = self._route
            handle = route.handle
            compressed, size = _unpack_prefix(buffer, start)
            if handle is not None and size == end - start - PREFIX_BYTES and not compressed and size <= route.longest:
                self.flags |= _DELIVERED
                try:
                    handle(self, buffer[start + PREFIX_BYTES : end])
                except Exception:
                    self._handler_failed()
                return
        if self.flags & (_ENDED | _NO_CALL):
            if ended and self.flags & _NO_CALL:
                self.end()
            return
        incoming = self._incoming
        if incoming is None:
            incoming = self._read_piecemeal()
        elif not ended and incoming.append(buffer, start, end):
            return
        with memoryview(buffer) as whole, whole[start:end] as view:
            incoming.take(view)
        if ended:
            self.end()

    def _read_piecemeal(self) -> MessageAssembly:
        incoming = self._incoming
        if incoming is None:
            method = self._route.method
            check_room = method.check_room if isinstance(method, Unary) else None
            incoming = self._incoming = MessageAssembly(self, self.peer.service, self._route.head.encoding, check_room)
            self.flags |= _PIECEMEAL
        return incoming

    def target(self) -> memoryview | None:
        return None if self._incoming is None or self.flags & _ENDED else self._incoming.target()

    def advance(self, size: int) -> None:
        if self._incoming is None or self.flags & _ENDED:
            return
        self._incoming.advance(size)
        if self.flags & REMOTE_CLOSED:
            self.end()

    def refuse(self, error: NaiadError | MemoryError) -> None:
        """End the call because of its request message."""
        if isinstance(error, NaiadError):
            self.give_up(error.grpc_code, str(error))
        else:
            self.give_up(Status.RESOURCE_EXHAUSTED, "there is no memory for the request message; try again later")

    def deliver(self, message: Body) -> None:
        """Hand a whole request message to the method."""
        handle = self._route.handle
        if handle is not None and self.flags & _DELIVERED:
            self.give_up(Status.INTERNAL, "the method takes one request message, a second one came")
            return
        self.flags |= _DELIVERED
        try:
            if handle is not None:
                handle(self, message)
            elif self._receiver is not None:
                self._receiver.receive(message)
        except Exception:
            self._handler_failed()

    def end(self) -> None:
        if self.flags & _NO_CALL:
            self._end_with(plain_http(self._route.head.http_status))
            return
        incoming = self._incoming
        if self.flags & _ENDED or (incoming is not None and incoming.is_held_back):
            return
        if incoming is not None and incoming.is_within_message:
            self.give_up(Status.INTERNAL, "the request ended in the middle of a message")
        elif self._route.handle is None:
            try:
                if self._receiver is not None:
                    self._receiver.end()
            except Exception:
                self._handler_failed()
        elif not self.flags & _DELIVERED:
            self.finish(Status.INTERNAL, NO_MESSAGE)

    def lost(self, code: int) -> None:
        # The next sweep forgives the peer that it gave a call up, if it does not do so all the time.
        self.peer.patience = 1
        if not self.flags & _ENDED:
            owner = self.owner
            if owner is not None:
                self._count_lost()
            self._forget()
            self._cancel(owner)

    def _count_lost(self) -> None:
        service = self.peer.service
        if self.peer.lost or self._core.failed:
            service.cancelled.disconnect += 1
        elif self.flags & _TIMED and service.deadlines.is_about_to_pass(self):
            # The caller's clock began to run when it sent the call, so it was the first to see its deadline pass.
            service.cancelled.deadline += 1
        else:
            service.cancelled.client_cancel += 1

    def drained(self) -> None:
        if self._route.handle is not None or self.on_drained is None or self.flags & _ENDED:
            return
        try:
            self.on_drained()
        except Exception:
            self._handler_failed()

    def expire(self) -> None:
        """The deadline has passed."""
        if not self.flags & _ENDED:
            self.flags &= ~_TIMED
            # What it has not taken by now it will not wait for.
            self._core.drop(self)
            if self.owner is not None:
                self.peer.service.cancelled.deadline += 1
            self.give_up(Status.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def give_up(self, code: int, text: str) -> None:
        """End a call that its service did not end, and tell who works on it."""
        if not self.flags & _ENDED:
            owner = self.owner
            self.finish(code, text)
            self._cancel(owner)

    def stop(self) -> None:
        """The server stops: a call with a stream of requests is to end by itself, another one must send its message."""
        if self.flags & _ENDED:
            return
        if self.flags & _NO_CALL:
            self.end()
            return
        if self._route.handle is not None:
            if not self.flags & _DELIVERED:
                self._read_piecemeal().expect()
            return
        try:
            if self._receiver is not None:
                self._receiver.stop()
        except Exception:
            self._handler_failed()

    def check_rate(self, waited_s: int) -> bool:
        """Whether a message that began ``waited_s`` ago is still waited for, and comes fast enough."""
        return self._incoming is not None and self._incoming.check_rate(waited_s)

    def _cancel(self, owner: CallOwner | None) -> None:
        if owner is None:
            return
        try:
            owner.cancel()
        except Exception:
            log.exception("giving a call up failed: %s", self._route.head.path)

    # What services ask for

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._route.head.metadata

    @property
    def ended(self) -> bool:
        return bool(self.flags & _ENDED)

    @property
    def congested(self) -> bool:
        outboxed = self._outboxed if self.flags & _COMPRESSES else 0
        return self.queued_bytes + outboxed > CONGESTED_BYTES

    def reply(self, parts: Sequence[Any], size: int) -> None:
        core = self._core
        framed = size + PREFIX_BYTES
        if (
            self.flags == _UNARY_ANSWERABLE
            and core.plain
            and framed <= core.frame_bytes
            and framed <= core.window
            and framed <= core.initial_window + self.credit
        ):
            # One frame that fits both windows, with nothing queued before it: written whole, without the queues.
            core.window -= framed
            self.flags = _UNARY_ANSWERED
            self.owner = None
            del core.streams[self.id]
            core.out.append(whole_response(self.id, parts, size))
            if not core.inside:
                core.wake()
            return
        self.send(parts, size)
        self.finish()

    def send(self, parts: Sequence[Any], size: int) -> None:
        if self.flags & _ENDED:
            return
        if self.flags & _COMPRESSES:
            self._send_compressed(parts, size)
        else:
            self._send_framed(0, parts, size)

    def _send_framed(self, flag: int, parts: Sequence[Any], size: int) -> None:
        if not self.flags & HEADERS_SENT:
            encoding = self._route.head.answer_encoding if self.flags & _COMPRESSES else IDENTITY
            self._core.send_headers(self, opening(encoding))
        self._core.send_data(self, (prefix.pack(flag, size), *parts), size + PREFIX_BYTES)

    def _send_compressed(self, parts: Sequence[Any], size: int) -> None:
        """Compress large responses in a thread; small ones, which do not get smaller, wait their turn behind them."""
        outbox = self._outbox
        if size < MIN_COMPRESSED_BYTES and not outbox:
            self._send_framed(0, parts, size)
        elif size <= OFF_LOOP_BYTES and not outbox:
            self._send_packed(self._compress(parts))
        else:
            outbox.append((parts, size))
            self._outboxed += size
            if len(outbox) == 1:
                self.peer.run_in_thread(self._compress, parts, self._compressed)

    def _compress(self, parts: Sequence[Any]) -> bytes:
        return compress(parts, self._route.head.answer_encoding, self._route.level)

    def _send_packed(self, packed: bytes) -> None:
        self._send_framed(1, (packed,), len(packed))

    def _compressed(self, packed: bytes) -> None:
        outbox = self._outbox
        if not outbox or self._core.streams.get(self.id) is not self:
            return
        self._outboxed -= outbox.popleft()[1]
        self._send_packed(packed)
        if outbox:
            self.peer.run_in_thread(self._compress, outbox[0][0], self._compressed)
        elif self._closing is not None:
            self._core.end(self, self._closing)

    def finish(self, code: int = 0, text: str = "") -> None:
        if self.flags & _ENDED:
            return
        if self.flags & _COMPRESSES and self._outbox:
            if not code:
                self._closing = closing(code, text)
                self._forget()
                return
            self._outbox.clear()
        self._end_with(closing(code, text) if self.flags & HEADERS_SENT else only(code, text))

    def _end_with(self, block: bytes) -> None:
        self._forget()
        if not self.flags & REMOTE_CLOSED:
            # The next sweep stops what is still to come of the request.
            self.peer.patience = 1
        self._core.end(self, block)

    def pause(self) -> None:
        self.flags |= PAUSED

    def resume(self) -> None:
        if self.flags & PAUSED and not self.flags & _ENDED:
            self.flags &= ~PAUSED
            self.peer.call_soon(self.go_on)

    def go_on(self) -> None:
        """Read what was kept while the call was paused or busy."""
        if self.flags & (PAUSED | BUSY | _ENDED):
            return
        if self._incoming is not None:
            self._incoming.read_on()
        if self.flags & REMOTE_CLOSED:
            self.end()
        elif not self.flags & (PAUSED | BUSY | _ENDED):
            self._core.grant(self)

    def _forget(self) -> None:
        """Drop what is not needed to write the response, now that the call has ended."""
        if self.flags & _TIMED:
            self.peer.service.deadlines.remove(self)
        self.flags = self.flags & ~_TIMED | _ENDED
        self.owner = None
        if isinstance(self._route.method, Streaming):
            # These lead back to this call.
            self.on_drained = self._receiver = None
        if self._incoming is not None:
            self._incoming.forget()
            self._incoming = None

    def _handler_failed(self) -> None:
        log.exception("handler failed: %s", self._route.head.path)
        self.give_up(Status.INTERNAL, INTERNAL_FAILURE)


_UNARY_ANSWERABLE: Final = REMOTE_CLOSED | _DELIVERED
_UNARY_ANSWERED: Final = REMOTE_CLOSED | LOCAL_CLOSED | _DELIVERED | _ENDED

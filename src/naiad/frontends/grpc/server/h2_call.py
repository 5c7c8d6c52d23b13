"""One gRPC call on a stream of our own HTTP/2: from the data of its request to the frames of its response.

The path of a small unary call is ``data`` -> the method's handler -> ``reply``, without anything else in between.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from naiad.errors import INTERNAL_FAILURE, NaiadError
from naiad.frontends.grpc.rpc.call import Body, CallOwner, Receiver, Streaming, Unary
from naiad.frontends.grpc.server.message_assembly import MessageAssembly, OffLoopRunner
from naiad.frontends.inference.offload import OFF_LOOP_BYTES
from naiad.wire.compression import compress
from naiad.wire.grpc.call_head import NO_TIMEOUT, CallHead
from naiad.wire.grpc.compression import IDENTITY, LEVELS
from naiad.wire.grpc.messages import PREFIX_BYTES, prefix
from naiad.wire.grpc.responses import Fields, closing, only, opening, plain_http, whole_response
from naiad.wire.grpc.status import NO_MESSAGE, STOPPING, Status
from naiad.wire.http2.stream import BUSY, FIRST_FREE_FLAG, HEADERS_SENT, LOCAL_CLOSED, PAUSED, REMOTE_CLOSED, Stream

if TYPE_CHECKING:
    from naiad.frontends.grpc.rpc.limits import GrpcLimits
    from naiad.frontends.grpc.server.state import GrpcService
    from naiad.request import BatchTimes
    from naiad.wire.http2.connection import Http2Connection
    from naiad.wire.http2.headers import Http2RequestHead

log = logging.getLogger(__name__)

# In this order: the call has a deadline; it has ended; responses are compressed; a message was delivered; the request
# is assembled from pieces; the head is not one of gRPC, so no method gets the call.
_TIMED: Final = FIRST_FREE_FLAG
_ENDED: Final = FIRST_FREE_FLAG << 1
_COMPRESSES: Final = FIRST_FREE_FLAG << 2
_DELIVERED: Final = FIRST_FREE_FLAG << 3
_PIECEMEAL: Final = FIRST_FREE_FLAG << 4
_NO_CALL: Final = FIRST_FREE_FLAG << 5

CONGESTED_BYTES: Final = 1 << 20
MIN_COMPRESSED_BYTES: Final = 256
"""Smaller responses do not shrink, so they are sent uncompressed."""

# Bound once: it runs for every small call.
_unpack_prefix = prefix.unpack_from


class CallPeer(OffLoopRunner, Protocol):
    """The connection of a call.

    Attributes:
        turned_away: new calls are refused, because the server stops.
        lost: the transport is gone.
        quiet_limit_s: seconds without an event after which the listener's sweep looks at the connection.
    """

    turned_away: bool
    lost: bool
    quiet_limit_s: int

    @property
    def service(self) -> GrpcService:
        """The state that all connections of the listener share."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back in the next turn of the loop."""


class RpcRoute:
    """The target of a request head, found once for all calls with that head.

    Attributes:
        handle: the handler of a unary method; None for others.
        method: None if there is no such method, or the head is malformed.
        flags: the flags that a call begins with.
        longest: the largest request message in bytes that takes the fast path.
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
        if self.level and method is not None and method.compressed and head.response_encoding != IDENTITY:
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

    # Set only where they are needed: a small unary call leaves these slots empty.
    _receiver: Receiver | None
    _outbox: deque[tuple[Sequence[Any], int]]
    _outboxed: int
    _closing: bytes | None
    on_drained: Callable[[], None] | None
    tick: int

    def __init__(self, peer: CallPeer, core: Http2Connection, stream_id: int, head: Http2RequestHead) -> None:
        # Not through super(): one call less per request on the hot path.
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
        """Begin a call that has a deadline, compresses, or is not for an existing unary method."""
        route, head = self._route, self._route.head
        timed = self.flags & _TIMED
        # Set again once the deadline is armed: ``_forget`` removes only armed ones.
        self.flags &= ~_TIMED
        if self.flags & _COMPRESSES:
            self._outbox = deque()
            self._outboxed = 0
            self._closing = None
        if head.http_status != 200:
            # The response waits for the end of the request: some HTTP clients fail if it comes first.
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
        # Before ``open``, which may set it.
        self.on_drained = None
        try:
            self._receiver = method.open(self)
        except Exception:
            self._handler_failed()
            return
        # The method may have ended the call within ``open``: such a call must not get an owner.
        if not self.flags & _ENDED:
            self.owner = self._receiver

    # Called by the connection

    def data(self, buffer: bytearray, start: int, end: int, ended: bool) -> None:
        # The fast path: one uncompressed message, whole in the first data, needs no assembly.
        if ended and self._incoming is None and end - start >= PREFIX_BYTES and not self.flags & _ENDED:
            route = self._route
            handle = route.handle
            compressed, size = _unpack_prefix(buffer, start)
            if handle is not None and size == end - start - PREFIX_BYTES and not compressed and size <= route.longest:
                self.flags |= _DELIVERED
                try:
                    # A slice of a bytearray is a copy, which the method may keep: all connections share the buffer.
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
        # Released at once: a bytearray with an open view cannot be resized.
        with memoryview(buffer) as whole, whole[start:end] as view:
            incoming.take(view)
        if ended:
            self.end()

    def _read_piecemeal(self) -> MessageAssembly:
        incoming = self._incoming
        if incoming is None:
            method = self._route.method
            check_room = method.check_room if isinstance(method, Unary) else None
            find_arena = None if method is None else method.find_arena
            encoding = self._route.head.encoding
            incoming = MessageAssembly(self, self.peer.service, encoding, check_room, find_arena)
            self._incoming = incoming
            self.flags |= _PIECEMEAL
        return incoming

    def target(self) -> memoryview | None:
        return None if self._incoming is None or self.flags & _ENDED else self._incoming.target()

    def advance(self, size: int) -> None:
        if self._incoming is None or self.flags & _ENDED:
            return
        self._incoming.advance(size)
        # Data that are received straight into a message bring no flag of their own: the connection has set this one.
        if self.flags & REMOTE_CLOSED:
            self.end()

    def refuse(self, error: NaiadError | MemoryError) -> None:
        """Refuse the request message, and with it the call."""
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
        # Before the handler, which may reply at once: ``reply`` compares the flags.
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
        # ``continue_reading`` ends it once the kept data are delivered.
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
        # The next sweep then forgives the peer its cancelled call; a peer that cancels all the time is cut off.
        self.peer.quiet_limit_s = 1
        if not self.flags & _ENDED:
            owner = self.owner
            if owner is not None:
                self._count_lost()
            # Before the owner is cancelled: its error response then finds a call that has ended.
            self._forget()
            self._cancel(owner)

    def _count_lost(self) -> None:
        service = self.peer.service
        if self.peer.lost or self._core.failed:
            service.cancelled.disconnect += 1
        elif self.flags & _TIMED and service.deadlines.is_about_to_pass(self):
            # The caller's clock started when it sent the call, so its deadline passes there first, and it cancels.
            service.cancelled.deadline += 1
        else:
            service.cancelled.client_cancel += 1

    def drained(self) -> None:
        # ``on_drained`` is unset in unary calls, so their handler is tested first.
        if self._route.handle is not None or self.on_drained is None or self.flags & _ENDED:
            return
        try:
            self.on_drained()
        except Exception:
            self._handler_failed()

    def expire(self) -> None:
        """The deadline has passed."""
        if not self.flags & _ENDED:
            # ``Deadlines`` has removed the call from its bucket already.
            self.flags &= ~_TIMED
            # The caller does not wait for unsent responses either; behind them, the status would come late.
            self._core.drop(self)
            if self.owner is not None:
                self.peer.service.cancelled.deadline += 1
            self.give_up(Status.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def give_up(self, code: int, text: str) -> None:
        """End a call that its service did not end, and cancel its owner."""
        if not self.flags & _ENDED:
            # ``finish`` drops the owner, so it is taken before; its response then finds a call that has ended.
            owner = self.owner
            self.finish(code, text)
            self._cancel(owner)

    def stop(self) -> None:
        """The server stops: a stream of requests should end by itself, a unary call must send its message in time."""
        if self.flags & _ENDED:
            return
        if self.flags & _NO_CALL:
            self.end()
            return
        if self._route.handle is not None:
            if not self.flags & _DELIVERED:
                self._read_piecemeal().watch_next()
            return
        try:
            if self._receiver is not None:
                self._receiver.stop()
        except Exception:
            self._handler_failed()

    def check_rate(self, waited_s: int) -> bool:
        """Whether a message that began ``waited_s`` seconds ago still arrives, and fast enough."""
        return self._incoming is not None and self._incoming.check_rate(waited_s)

    def _cancel(self, owner: CallOwner | None) -> None:
        if owner is None:
            return
        try:
            owner.cancel()
        except Exception:
            log.exception("giving a call up failed: %s", self._route.head.path)

    # Called by services

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
            # The fast path: one frame that fits both windows, with nothing queued before it, skips the queues.
            core.window -= framed
            self.flags = _UNARY_COMPLETE
            self.owner = None
            del core.streams[self.id]
            core.out.append(whole_response(self.id, parts, size))
            # Within received data the connection writes afterwards anyway.
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
            encoding = self._route.head.response_encoding if self.flags & _COMPRESSES else IDENTITY
            self._core.send_headers(self, opening(encoding))
        self._core.send_data(self, (prefix.pack(flag, size), *parts), size + PREFIX_BYTES)

    def _send_compressed(self, parts: Sequence[Any], size: int) -> None:
        """Compress large responses in a thread; small ones, which do not shrink, keep their place behind them."""
        outbox = self._outbox
        if size < MIN_COMPRESSED_BYTES and not outbox:
            self._send_framed(0, parts, size)
        elif size <= OFF_LOOP_BYTES and not outbox:
            self._send_packed(self._compress(parts))
        else:
            outbox.append((parts, size))
            self._outboxed += size
            # One at a time for each call, which keeps the order of its responses.
            if len(outbox) == 1:
                self.peer.run_in_thread(self._compress, parts, self._compressed)

    def _compress(self, parts: Sequence[Any]) -> bytes:
        return compress(parts, self._route.head.response_encoding, self._route.level)

    def _send_packed(self, packed: bytes) -> None:
        self._send_framed(1, (packed,), len(packed))

    def _compressed(self, packed: bytes) -> None:
        outbox = self._outbox
        # The call may have ended while the thread worked.
        if not outbox or self._core.streams.get(self.id) is not self:
            return
        self._outboxed -= outbox.popleft()[1]
        self._send_packed(packed)
        if outbox:
            self.peer.run_in_thread(self._compress, outbox[0][0], self._compressed)
        elif self._closing is not None:
            self._core.end(self, self._closing)

    def finish(self, code: int = 0, text: str = "", fields: Fields = ()) -> None:
        if self.flags & _ENDED:
            return
        if self.flags & _COMPRESSES and self._outbox:
            if not code:
                # The status leaves behind the responses that are still compressed; an error does not wait for them.
                self._closing = closing(code, text, fields)
                self._forget()
                return
            self._outbox.clear()
        self._end_with(closing(code, text, fields) if self.flags & HEADERS_SENT else only(code, text, fields))

    def _end_with(self, block: bytes) -> None:
        self._forget()
        if not self.flags & REMOTE_CLOSED:
            # The next sweep stops the rest of the request; a reset at once would be a failure to some clients.
            self.peer.quiet_limit_s = 1
        self._core.end(self, block)

    def joined(self, batch: BatchTimes) -> None:
        return

    def pause(self) -> None:
        self.flags |= PAUSED

    def resume(self) -> None:
        if self.flags & PAUSED and not self.flags & _ENDED:
            self.flags &= ~PAUSED
            # Not at once: ``resume`` is called from within responses, which must not nest in further requests.
            self.peer.call_soon(self.continue_reading)

    def continue_reading(self) -> None:
        """Read the data that were kept while the call was paused or busy."""
        if self.flags & (PAUSED | BUSY | _ENDED):
            return
        if self._incoming is not None:
            self._incoming.read_on()
        if self.flags & REMOTE_CLOSED:
            self.end()
        elif not self.flags & (PAUSED | BUSY | _ENDED):
            # The window stayed closed while the call was paused, so the caller waits for this.
            self._core.grant(self)

    def _forget(self) -> None:
        """Drop everything that the writing of the response does not need, now that the call has ended."""
        if self.flags & _TIMED:
            self.peer.service.deadlines.remove(self)
        self.flags = self.flags & ~_TIMED | _ENDED
        self.owner = None
        if isinstance(self._route.method, Streaming):
            # Cut by hand: these refer back to this call.
            self.on_drained = self._receiver = None
        if self._incoming is not None:
            self._incoming.forget()
            self._incoming = None

    def _handler_failed(self) -> None:
        log.exception("handler failed: %s", self._route.head.path)
        self.give_up(Status.INTERNAL, INTERNAL_FAILURE)


# Compared as a whole: any other flag (a deadline, compression, sent headers) takes the slower path of ``reply``.
_UNARY_ANSWERABLE: Final = REMOTE_CLOSED | _DELIVERED
_UNARY_COMPLETE: Final = REMOTE_CLOSED | LOCAL_CLOSED | _DELIVERED | _ENDED

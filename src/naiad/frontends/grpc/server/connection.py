"""One gRPC connection: HTTP/2 on a socket. It writes the responses of its calls once per turn of the loop, and closes
in order: at its maximum age, when the peer is dead, and when the server stops.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from naiad.errors import NaiadError
from naiad.eventloop.end_of_turn import end_of_turn_queue
from naiad.eventloop.large_writes import LARGE_BYTES
from naiad.frontends.grpc.rpc.access_gate import admitted
from naiad.frontends.grpc.rpc.call_log import with_call_log
from naiad.frontends.grpc.rpc.timed_call import with_timing
from naiad.frontends.grpc.server.h2_call import H2Call, RpcRoute
from naiad.frontends.grpc.server.keepalive import PING, Keepalive
from naiad.frontends.grpc.server.state import RECEIVE_BYTES
from naiad.telemetry.logs.server_log import verbose
from naiad.wire.grpc.call_head import parse_call_head
from naiad.wire.grpc.status import Status
from naiad.wire.http2.connection import Http2Connection
from naiad.wire.http2.frames import MAX_STREAM_ID, Http2ErrorCode, encode_goaway, encode_ping

if TYPE_CHECKING:
    from naiad.frontends.grpc.server.state import GrpcService
    from naiad.wire.http2.headers import Http2RequestHead

log = logging.getLogger(__name__)

PUMP_BYTES: Final = 1 << 20
"""The bytes of waiting data that are written to the transport at a time, so that back-pressure can stop them."""
_NS_PER_MS: Final = 1_000_000
MAX_CHECK_INTERVAL_S: Final = 5
MAX_REFUSED: Final = 512
"""Connections over the limit that get the reason before they are closed; further ones are dropped."""
_AGE_SPREAD: Final = 0.1
_DRAIN_PING: Final = b"naiad go"
_HTTP1_RESPONSE: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 68\r\n\r\n"
    b"this port speaks gRPC over HTTP/2; HTTP/1.1 has a port of its own.\r\n"
)


class GrpcConnection(asyncio.BufferedProtocol):
    """The protocol object of one connection.

    Attributes:
        service: the state that all connections of the listener share.
        core: the HTTP/2 connection without its socket.
        turned_away: new calls are refused, because the server stops.
        quiet: seconds since the listener's sweep last called ``check_time``; it does so when they reach
            ``quiet_limit_s``.
        lost: the transport is gone.
    """

    __slots__ = (
        "_age_ns",
        "_born_ns",
        "_choked",
        "_closing",
        "_descriptor",
        "_end_of_turn",
        "_going_away_ns",
        "_heard",
        "_in_line",
        "_keepalive",
        "_linger_s",
        "_loop",
        "_pumped",
        "_stalled_s",
        "_transport",
        "_unsent",
        "_waiting",
        "_wakes",
        "_write",
        "_yields",
        "core",
        "get_buffer",
        "lost",
        "quiet",
        "quiet_limit_s",
        "service",
        "turned_away",
    )

    def __init__(self, service: GrpcService) -> None:
        self.service = service
        self.core = core = Http2Connection(
            service.receive_buffer(),
            partial(H2Call, self),
            self._find_route,
            self._wake,
            service.streams_per_connection(),
            _HTTP1_RESPONSE,
        )
        core.on_ping = self._on_ping
        core.on_ping_ack = self._on_ping_ack
        # Bound to the HTTP/2 connection itself: one call less for every read.
        self.get_buffer = core.target  # type: ignore[method-assign]
        self.turned_away = service.draining
        self.quiet = 0
        self.quiet_limit_s = 1
        self.lost = False
        now_ns = service.clock.now_ns()
        self._keepalive = Keepalive(service.limits, now_ns)
        self._born_ns = now_ns
        self._heard = False
        self._wakes = False
        self._choked = False
        self._in_line = False
        self._yields = False
        self._closing = False
        self._going_away_ns = 0
        self._unsent = 0
        self._waiting = 0
        self._pumped = 0
        self._stalled_s = 0
        self._linger_s = 0
        age_ns = service.limits.max_connection_age_ms * _NS_PER_MS
        # Spread (gRPC proposal A9), so that connections that began together do not all end together.
        self._age_ns = int(age_ns * random.uniform(1 - _AGE_SPREAD, 1 + _AGE_SPREAD))

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write
        self._loop = asyncio.get_running_loop()
        self._end_of_turn = end_of_turn_queue(self._loop)
        self._read_ahead_of(transport)
        connections = self.service.connections
        connections.add(self)
        verbose(log, 3, "gRPC connection opened: %s", transport.get_extra_info("peername"))
        if self.service.draining:
            self._transport.abort()
            return
        limit = self.service.limits.max_connections
        if len(connections) > limit + MAX_REFUSED:
            self._transport.abort()
        elif len(connections) > limit:
            # A client reads no GOAWAY before the settings of the server.
            self.core.greet()
            self.core.fail(Http2ErrorCode.ENHANCE_YOUR_CALM, f"the server has its limit of {limit} connections open")
            self._flush()

    def _read_ahead_of(self, transport: asyncio.BaseTransport) -> None:
        """Have data of large messages read from the socket, where the transport does not decrypt them."""
        connected = transport.get_extra_info("socket")
        if connected is not None and transport.get_extra_info("sslcontext") is None and hasattr(os, "readv"):
            self._descriptor = connected.fileno()
            self.core.read_into = self._read_into

    def buffer_updated(self, nbytes: int) -> None:
        # A flag, so that no clock is read for every read; the sweep turns it into a time.
        self._heard = True
        core = self.core
        core.received(nbytes)
        out = core.out
        if len(out) == 1 and not core.waiting and not core.closed_to_new and not core.failed:
            # The fast path: one response and nothing else to do.
            self._write(out.pop())
        elif out or core.waiting or core.closed_to_new:
            self._flush()
        if nbytes == RECEIVE_BYTES:
            # A full buffer: more data wait in the socket, as do other connections.
            self._yield_to_others()

    def _yield_to_others(self) -> None:
        """Read on in the next turn of the loop: libuv fills a buffer up to 32 times before it polls other connections.

        A large frame is received straight into its message, which costs little: it is not interrupted.
        """
        if not (
            self.core.is_within_large_frame or self._choked or self._yields or self.lost or self._transport.is_closing()
        ):
            self._yields = True
            self._transport.pause_reading()
            self._loop.call_soon(self.read_on)

    def _read_into(self, parts: Sequence[memoryview], size: int) -> int:
        """Read what waits in the socket, ahead of the transport. Called while the transport reads."""
        # The number of a closed socket may be that of another file.
        if self._transport.is_closing():
            return 0
        try:
            received = os.readv(self._descriptor, parts)
        except OSError:
            # Nothing waits, or the transport will find the reason.
            return 0
        if received == size:
            self._yield_to_others()
        return received

    def read_on(self) -> None:
        """Resume reading: the other connections had their turn."""
        if not self._yields:
            return
        self._yields = False
        if not (self._choked or self.lost or self._transport.is_closing()):
            self._transport.resume_reading()

    def feed(self, data: bytes) -> None:
        """Take bytes that another protocol object received on this transport before this one took it over."""
        core = self.core
        # What waits in the socket comes behind these.
        read_into, core.read_into = core.read_into, None
        while data and not self.lost:
            target = core.target()
            taken = min(len(target), len(data))
            target[:taken] = data[:taken]
            data = data[taken:]
            self.buffer_updated(taken)
        core.read_into = read_into

    def eof_received(self) -> bool:
        # HTTP/2 cannot use a connection with one direction: False closes it.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        # After the flag, by which the calls tell a disconnect from a cancellation.
        self.core.lose_streams(Http2ErrorCode.CANCEL)
        self.service.forget(self)
        verbose(log, 3, "gRPC connection closed: %s", self._transport.get_extra_info("peername"))

    def pause_writing(self) -> None:
        # What the peer does not take is not added to: with its input, its requests wait too.
        self._choked = True
        if not self._yields:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._choked = False
        if not self.lost and not self._transport.is_closing():
            if not self._yields:
                self._transport.resume_reading()
            self._flush()

    # Called by calls

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back in the next turn of the loop."""
        self._loop.call_soon(callback)

    def run_in_thread(self, work: Callable[[Any], Any], argument: Any, then: Callable[[Any], object]) -> None:
        """Do ``work``, which must not raise, off the loop, and pass its outcome to ``then`` on the loop."""
        done = self._loop.run_in_executor(self.service.worker, work, argument)
        # The end of the listener cancels waiting work, which has no outcome.
        done.add_done_callback(lambda future: future.cancelled() or then(future.result()))

    def _find_route(self, head: Http2RequestHead) -> RpcRoute:
        call_head = parse_call_head(head)
        method = self.service.methods.get(call_head.path)
        gate = self.service.gate
        # A malformed head is refused as such, also without a key.
        if gate is not None and call_head.http_status == 200 and not call_head.status:
            try:
                method = admitted(method, call_head.path, call_head.metadata, gate)
            except NaiadError as error:
                call_head = replace(call_head, status=Status(error.grpc_code), text=str(error))
        method = with_call_log(with_timing(method, call_head.metadata), call_head.path)
        return RpcRoute(call_head, method, self.service.limits)

    # Writing

    def _wake(self) -> None:
        """Write at the end of this turn: no received data are being processed, after which it would write anyway."""
        if not self._wakes:
            self._wakes = True
            self._end_of_turn.call(self._loop, self._flush)

    def _flush(self, has_turn: bool = False) -> None:
        """Write the due frames, as far as the peer takes them and other connections have had their turns.

        ``has_turn``: this connection has waited for its own.
        """
        self._wakes = False
        if self.lost:
            # Nobody reads them, and views among them keep tensors alive.
            self.core.out.clear()
            return
        core = self.core
        more = True
        while more:
            more = bool(core.waiting) and not self._choked and (has_turn or self._has_room()) and self._pump()
            has_turn = False
            out = core.out
            if out:
                # A new list: the transport may keep the pieces of the old one.
                core.out = []
                if len(out) == 1:
                    self._transport.write(out[0])
                else:
                    self._write_all(out)
        # Only changes are counted; most responses never wait.
        if core.waiting_bytes != self._waiting:
            self._count_waiting()
        if core.failed or (core.closed_to_new and not core.streams):
            if core.failed and not self._closing:
                verbose(log, 3, "a gRPC connection ended: %s", core.failure)
            self._begin_to_close()

    def _count_waiting(self) -> None:
        """Count the growth of the bytes that the peer does not take for now."""
        before, self._waiting = self._waiting, self.core.waiting_bytes
        if self._waiting > before:
            self.service.count_waiting(self._waiting - before, self._loop.call_soon)

    def _has_room(self) -> bool:
        """Whether waiting data may be written in this turn of the loop; if not, they are in a later one."""
        writes = self.service.large_writes
        if writes.has_room:
            return True
        if not self._in_line:
            self._in_line = True
            writes.wait(self._take_turn)
        return False

    def _take_turn(self) -> None:
        self._in_line = False
        self._flush(True)

    def _pump(self) -> bool:
        core = self.core
        # Without this the streams would wake the connection, which writes already.
        core.inside = True
        before = core.waiting_bytes
        try:
            return core.pump(PUMP_BYTES)
        finally:
            core.inside = False
            if (sent := before - core.waiting_bytes) >= LARGE_BYTES:
                self.service.large_writes.spend(sent)

    def _write_all(self, out: list[Any]) -> None:
        if self.service.gathers_writes:
            self._transport.writelines(out)
            return
        # asyncio's writelines ignores back-pressure in several releases of Python 3.12 and 3.13 (CVE-2024-12254).
        for piece in out:
            self._transport.write(piece)

    def _begin_to_close(self) -> None:
        """Wait for the peer to close: closing with unread input could destroy responses that it has not read yet."""
        if not self._closing:
            self._closing = True
            self._linger_s = 0
            self.quiet_limit_s = 1
            if self.core.refused:
                # An HTTP/1 client closes only once the response has ended, which the end of the connection shows it.
                self._transport.close()

    # The end of the connection

    def drain(self) -> None:
        """Close once the open calls have their responses; refuse new calls."""
        self.turned_away = True
        # The shorter patience of a server that stops begins now.
        self._stalled_s = 0
        self._go_away("the server is shutting down")
        # A copy: a call that ends at once leaves the dict.
        for call in list(self.core.streams.values()):
            cast("H2Call", call).stop()

    def abort(self) -> None:
        """Drop the connection and the data that it has not sent."""
        self._transport.abort()

    def _go_away(self, reason: str) -> None:
        """Request that the peer opens no more streams; those in flight are served until it knows (RFC 9113, 6.8)."""
        if self._going_away_ns or self.lost or self.core.failed:
            return
        self._going_away_ns = self.service.clock.now_ns()
        self.core.greet()
        # Without open calls one GOAWAY is enough; the peer sends a call that crosses it again.
        if not self.core.settled or not self.core.streams:
            self.core.close_to_new()
            self.core.out.append(encode_goaway(self.core.last_stream_id, Http2ErrorCode.NO_ERROR, reason))
        else:
            # The first GOAWAY refuses nothing. Once the ping returns, the peer has read it, and a second one names the
            # last stream: so no call that was on its way is lost.
            self.core.out.append(encode_goaway(MAX_STREAM_ID, Http2ErrorCode.NO_ERROR, reason))
            self.core.out.append(encode_ping(_DRAIN_PING, ack=False))
        self._wake()

    def _on_ping_ack(self, payload: bytes) -> None:
        if payload == _DRAIN_PING and not self.core.closed_to_new:
            self._close_to_new()

    def _close_to_new(self) -> None:
        self.core.close_to_new()
        self.core.write(encode_goaway(self.core.last_stream_id, Http2ErrorCode.NO_ERROR))

    def _on_ping(self) -> bool:
        now_ns = self.service.clock.now_ns()
        return self._keepalive.peer_pinged(now_ns, bool(self.core.streams), self._response_progress())

    # Time

    def check_time(self) -> None:
        """Check the peer's progress, the age and the keepalive; called by the sweep after ``quiet_limit_s`` seconds."""
        passed_s, self.quiet = self.quiet, 0
        core, now_ns = self.core, self.service.clock.now_ns()
        core.forgive(passed_s)
        # The callers of these had up to a second to end their requests by themselves.
        core.stop_unfinished()
        if self._closing:
            self._linger_s += passed_s
            # First in order, with the unsent bytes; a peer that does not take these is dropped later.
            if self._linger_s >= self.service.limits.drain_linger_s:
                self._transport.close()
            if self._linger_s >= self.service.limits.drain_linger_s + self.service.limits.stall_s:
                self._transport.abort()
            return
        if not self._makes_progress(passed_s):
            return
        if self._heard:
            self._heard = False
            self._keepalive.peer_is_there(now_ns)
        self._check_age(now_ns)
        if self._keepalive.is_dead(now_ns):
            log.info("dropped a connection whose peer did not answer a keepalive ping")
            self._transport.abort()
        elif self._keepalive.should_ping(now_ns, bool(core.streams), self._response_progress()):
            core.write(encode_ping(PING, ack=False))
        self.quiet_limit_s = self._next_check_s()

    def _next_check_s(self) -> int:
        core, limits = self.core, self.service.limits
        if core.streams or core.is_within_frame or self._going_away_ns or self._keepalive.waits:
            return 1
        # An idle connection is checked four times within its shortest time.
        times_ms = [limits.keepalive_time_ms, limits.max_connection_age_ms or limits.keepalive_time_ms]
        return max(1, min(MAX_CHECK_INTERVAL_S, min(times_ms) // 4000))

    def _makes_progress(self, passed_s: int) -> bool:
        """Drop a peer that leaves a frame half sent, or neither takes its responses nor sends anything."""
        core = self.core
        unsent, pumped = self._transport.get_write_buffer_size(), core.pumped
        limit_s, may_talk = self._stall_limit()
        waits = core.is_within_frame or core.waiting_bytes or unsent
        takes = unsent < self._unsent or pumped != self._pumped
        # A peer that takes its responses makes progress, also while its input is not read.
        moved = takes or (self._heard and may_talk)
        self._unsent, self._pumped = unsent, pumped
        if not takes:
            # New calls are refused before the time is over, if too much waits.
            core.takes_nothing()
        self._stalled_s = self._stalled_s + passed_s if waits and not moved else 0
        if self._stalled_s < limit_s:
            return True
        reason = f"the connection made no progress for {self._stalled_s} s"
        if unsent or core.is_within_frame:
            verbose(log, 3, "a gRPC connection was dropped: %s", reason)
            self._transport.abort()
        else:
            # The peer can still read: it learns the reason.
            self.give_up(reason)
        return False

    def _stall_limit(self) -> tuple[int, bool]:
        """The seconds that the peer may make no progress, and whether sending anything counts as progress."""
        limits, core = self.service.limits, self.core
        if not core.settled:
            return limits.start_s, False
        if core.is_within_frame:
            return limits.stall_s, True
        # Only the responses are missing. Input of the peer is no progress for a server that wants to stop.
        return (limits.drain_unread_s, False) if self.turned_away else (limits.unread_s, True)

    def give_up(self, reason: str) -> None:
        """End the connection because of its peer."""
        self.core.fail(Http2ErrorCode.ENHANCE_YOUR_CALM, reason)
        self._flush()

    def _check_age(self, now_ns: int) -> None:
        if not self._going_away_ns:
            if self._age_ns and now_ns - self._born_ns >= self._age_ns:
                self._go_away("max_age")
            return
        # The peer did not return the ping within a second: it had its time.
        if not self.core.closed_to_new:
            self._close_to_new()
        grace_ns = self.service.limits.max_connection_age_grace_ms * _NS_PER_MS
        if grace_ns and not self.turned_away and now_ns - self._going_away_ns >= grace_ns:
            self._transport.abort()

    def _response_progress(self) -> int:
        """A number that changes whenever this side has sent a response or a part of it."""
        core = self.core
        # Ended calls, not begun ones: grpcio pings after each response, and several slow calls may begin together.
        return (core.last_stream_id + 1 >> 1) - len(core.streams) + core.pumped

"""One HTTP/1.1 connection: from the socket's bytes to a handler and back.

The path of a small request is ``buffer_updated`` -> handler -> ``Exchange.send``, without tasks, futures, timers and
locks. Everything unusual (a body that has not arrived, chunks, HTTP/1.0, HEAD, pipelining out of order,
back-pressure, the end of the connection) takes the slower methods below and in ``response_writer.py``.

Bytes are received into one buffer that all connections of a listener share: the event loops used read and deliver in
one step, so a connection keeps only what it could not use at once. A body that is not there yet gets memory of its own
and is received straight into it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from naiad.errors import INTERNAL_FAILURE, QueueFullError
from naiad.frontends.http.server.exchange import Exchange, give_up
from naiad.frontends.http.server.response_writer import CHOKED, FINAL, REFUSED_HEAD, ResponseWriter
from naiad.frontends.http.server.state import RECEIVE_BYTES, HttpService
from naiad.telemetry.logs.server_log import verbose
from naiad.wire.http1.body import SizedBody
from naiad.wire.http1.chunked import ChunkedDecoder
from naiad.wire.http1.head import HEAD_END, MAX_HEAD_BYTES, HttpError, RequestHead, check_head_start
from naiad.worker.ipc.buffer_pool import BufferPool

log = logging.getLogger(__name__)

SMALL_BODY_BYTES: Final = 16_384
# Two marks, so that reading does not stop and resume with every response.
MAX_UNANSWERED: Final = 64
RESUME_UNANSWERED: Final = 32
# Each of many connections may keep its last head.
MAX_CACHED_HEAD_BYTES: Final = 2048
MAX_REFUSED: Final = 1024
"""Connections over the limit that get a 503 before they are closed; further ones are dropped."""

# The kind of the next bytes. The usual one is 0, so that ``buffer_updated`` needs one test.
_HEADS, _PARTIAL, _BODY, _CHUNKED, _DISCARD, _HTTP2, _SMALL_BODY = range(7)
_IN_BODY: Final = (_BODY, _CHUNKED, _SMALL_BODY)

_NOTHING: Final = memoryview(b"")
_NO_BODY: Final = SizedBody(BufferPool(0), 0, _NOTHING)
_NO_CHUNKS: Final = ChunkedDecoder(0)
_UNKEPT_HEAD: Final = RequestHead("", "", "", (1, 1), {})
_HTTP2_START: Final = b"PRI * HTTP/2.0\r\n\r\n"


class HttpConnection(ResponseWriter):
    """The protocol object of one connection; see the module for how it works."""

    __slots__ = (
        "_body",
        "_buffer",
        "_decoder",
        "_head",
        "_known",
        "_last",
        "_paused",
        "_rest",
        "_searched",
        "_state",
        "_target",
        "_view",
        "_yields",
    )

    def __init__(self, service: HttpService) -> None:
        super().__init__(service)
        # Bound once for the fast path: the memo empties this dict and never replaces it.
        self._known = service.memo.known
        self._last = REFUSED_HEAD
        self._buffer = service.receive_buffer()
        self._view = memoryview(self._buffer)
        self._target = self._view
        self._state = _HEADS
        self._rest = bytearray()
        self._searched = 0
        self._head = REFUSED_HEAD
        self._body = _NO_BODY
        self._decoder = _NO_CHUNKS
        self._paused = False
        self._yields = False

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Bound once: one look-up less for every response.
        self.write = self._transport.write
        self._service.connections.add(self)
        verbose(log, 3, "HTTP connection opened: %s", transport.get_extra_info("peername"))
        surplus = len(self._service.connections) - self._service.limits.max_connections
        if self._service.draining or surplus > MAX_REFUSED:
            self._transport.abort()
        elif surplus > 0:
            limit = self._service.limits.max_connections
            self._fail(503, f"the server has its limit of {limit} connections open; try again later")
            self._wait(self._service.limits.drain_linger_s)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._target

    def buffer_updated(self, nbytes: int) -> None:
        if self._state:
            self._receive_slowly(nbytes)
            return
        # The usual case, written out: exactly one request, with the same head as the last one on this connection.
        head = self._last
        buffer = self._buffer
        if nbytes == head.request_bytes and not self.pending and not self.halted and buffer.startswith(head.raw):
            exchange = Exchange(self, head)
            self.pending.append(exchange)
            # A slice of a bytearray is a copy, which the handler may keep: all connections share the buffer.
            try:
                head.handler(exchange, buffer[len(head.raw) : nbytes])
            except Exception:
                self._handler_failed(exchange)
        else:
            self._read_requests(buffer, 0, 0, nbytes)
            if nbytes == RECEIVE_BYTES:
                self._yield_to_others()

    def eof_received(self) -> bool:
        """The peer sends no more, mostly because it is gone: waiting requests are cancelled, responses still sent."""
        self._eof = True
        self._read_no_more()
        self._service.budget.cancelled.disconnect += give_up(self.pending)
        # True keeps the other direction open for the responses.
        return bool(self.pending) and self._can_half_close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._read_no_more()
        # Emptied before the owners are cancelled: their responses must find nothing to write to.
        abandoned = list(self.pending)
        self.pending.clear()
        for exchange in abandoned:
            # Cut by hand: a streaming response refers to its exchange.
            exchange.response = None
        self._service.budget.cancelled.disconnect += give_up(abandoned)
        self._service.forget(self)
        verbose(log, 3, "HTTP connection closed: %s", self._transport.get_extra_info("peername"))

    def forget_head(self) -> None:
        """Ask the application anew for the next request."""
        # ``REFUSED_HEAD`` stands for no request yet, which ``_may_hand_over`` has to know.
        if self._last is not REFUSED_HEAD:
            self._last = _UNKEPT_HEAD

    # Requests.

    def _read_requests(self, buffer: bytearray, position: int, searched: int, size: int) -> None:
        """Take every complete request out of ``buffer[position:size]`` and keep what is left.

        ``searched`` is how far the first head is known not to end.
        """
        pending = self.pending
        while position < size and not self.halted and len(pending) < MAX_UNANSWERED:
            end = buffer.find(HEAD_END, searched, size)
            if end < 0:
                break
            start = end + 4
            raw = bytes(buffer[position:start])
            # Looked up here too: for a known head the memo would cost two more calls.
            head = self._known.get(raw) or self._read_head(raw)
            if head is None:
                if self._state == _HTTP2:
                    self._hand_over(bytes(buffer[position:size]))
                    return
                # An empty line, or a head that was refused: ``halted`` then ends the loop.
                position = searched = start
                continue
            self._last = head if len(raw) <= MAX_CACHED_HEAD_BYTES else _UNKEPT_HEAD
            end = start + head.request_bytes - len(head.raw)
            if end > size:
                position = searched = self._begin_body(head, buffer, start, size)
                continue
            exchange = Exchange(self, head)
            pending.append(exchange)
            try:
                head.handler(exchange, buffer[start:end])
            except Exception:
                self._handler_failed(exchange)
            position = searched = end
        if position < size or self._state:
            self._keep(buffer, position, size)

    def _read_head(self, raw: bytes) -> RequestHead | None:
        """The head with its handler; None for an empty line between requests, a refused head, and HTTP/2."""
        # RFC 9112, section 2.2: an empty line before a request is ignored.
        raw = raw.removeprefix(b"\r\n")
        if raw == b"\r\n":
            return None
        try:
            return self._service.memo.get(raw)
        except HttpError as error:
            if raw == _HTTP2_START and self._may_hand_over():
                self._state = _HTTP2
            else:
                self._fail(error.status, error.message)
            return None

    def _dispatch(self, head: RequestHead, body: bytearray | memoryview) -> None:
        """Hand a request that did not come in one read to its handler."""
        if not head.keep_alive:
            self._read_no_more()
        exchange = Exchange(self, head)
        self.pending.append(exchange)
        try:
            head.handler(exchange, body)
        except Exception:
            self._handler_failed(exchange)

    def _handler_failed(self, exchange: Exchange) -> None:
        log.exception("handler failed: %s %s", exchange.head.method, exchange.head.target)
        if exchange.response is None and exchange in self.pending:
            self._send_error(exchange, 500, INTERNAL_FAILURE)

    def _keep(self, buffer: bytearray, position: int, size: int) -> None:
        """Keep the bytes that could not be used yet, and stop reading if the reason lies on this side."""
        if self._state > _PARTIAL:
            if self._rest:
                # It held the head of the body that arrives.
                self._rest = bytearray()
            return
        if position == size:
            self._rest = bytearray()
            self._enter(_HEADS)
            return
        # A head that is still incomplete keeps its time: entering the state anew would restart it.
        begun = self._state == _PARTIAL and position == 0
        if not begun:
            self._rest = buffer[position:size]
            self._enter(_PARTIAL)
        if self.halted or len(self.pending) >= MAX_UNANSWERED:
            self._searched = 0
            self._pause()
        else:
            self._check_partial_head()

    def _check_partial_head(self) -> None:
        rest = self._rest
        if rest.startswith(b"\r\n"):
            del rest[:2]
        if not rest:
            self._enter(_HEADS)
            return
        # The end of a head, four bytes, may lie across two reads.
        self._searched = max(0, len(rest) - 3)
        try:
            # At once: bytes that can be no head (TLS, for example) should not wait for the time limit.
            check_head_start(rest[0])
            if len(rest) > MAX_HEAD_BYTES:
                raise HttpError(431, f"request head is larger than {MAX_HEAD_BYTES} bytes")
        except HttpError as error:
            self._fail(error.status, error.message)

    # Connections that begin as HTTP/2.

    def _may_hand_over(self) -> bool:
        """Whether a gRPC listener takes HTTP/2 and this connection has had no request yet."""
        return self._service.take_http2 is not None and self._last is REFUSED_HEAD and not self.pending

    def _hand_over(self, data: bytes) -> None:
        take = self._service.take_http2
        # This object is done with the transport, which gets another protocol: nothing here may touch it any more.
        self.lost = True
        self._read_no_more()
        self._service.forget(self)
        if take is not None:
            take(self._transport, data)

    # Bodies that have not arrived yet.

    def _begin_body(self, head: RequestHead, buffer: bytearray, position: int, size: int) -> int:
        """Start with the body at ``position``; returns where the next request begins, or ``size``."""
        length = head.content_length or 0
        end = position + length
        if not head.chunked and end <= size:
            self._dispatch(head, buffer[position:end])
            return end
        if head.refused and (head.chunked or head.expect_continue or length > SMALL_BODY_BYTES):
            # The handler answers from the head alone: a body that may not pass is not waited for.
            self._read_no_more()
            self._dispatch(head, bytearray())
            return size
        if length > SMALL_BODY_BYTES:
            try:
                # Before memory is taken and before ``100 Continue``: such a client has then sent no body.
                self._service.check_arrival(head, length)
            except QueueFullError as error:
                self._fail(error.http_status, str(error), retry=True)
                return size
        self._head = head
        if position == size:
            if head.expect_continue:
                self._pass_interim()
            elif not head.chunked and length <= SMALL_BODY_BYTES:
                # libcurl and others send the body right after the head: it comes whole and needs no memory yet.
                self._enter(_SMALL_BODY)
                return size
        # Released at once: a bytearray with an open view could not be resized.
        with memoryview(buffer) as whole, whole[position:size] as data:
            if head.chunked:
                limits = self._service.limits
                self._decoder = ChunkedDecoder(limits.max_body_bytes, limits.too_large_status)
                self._enter(_CHUNKED)
                return position + self._feed(data)
            self._start_body(length, data)
        return size

    def _start_body(self, length: int, data: memoryview) -> None:
        try:
            head = self._head
            pool = self._service.pools.choose(length, head.find_arena)
            self._body = SizedBody(pool, length, data, head.first_part_bytes or 0)
        except MemoryError:
            self._fail_for_memory()
            return
        self._service.arriving_bytes += self._body.have
        self._target = self._body.target
        self._enter(_BODY)

    def _fail_for_memory(self) -> None:
        self._fail(503, "there is no memory for the request body; try again later")

    def _check_arriving(self) -> None:
        """Refuse this body unless it is the only one: the arriving bodies are too large together."""
        service = self._service
        # A single body is bounded by its own limit, and must be able to arrive.
        if self._arrived_bytes() == service.arriving_bytes:
            return
        error = service.budget.refuse(
            "body",
            f"the request bodies that are arriving hold more than {service.limits.max_arriving_bytes} bytes together; "
            "try again later, or raise --max-in-flight-bytes",
        )
        self._fail(error.http_status, str(error), retry=True)

    def _arrived_bytes(self) -> int:
        return self._body.have + len(self._decoder.body)

    def _receive_slowly(self, nbytes: int) -> None:
        # The states that are not listed drop the bytes.
        state = self._state
        if state == _SMALL_BODY:
            self._receive_small_body(nbytes)
        elif state == _BODY:
            self._receive_body(nbytes)
        elif state == _PARTIAL:
            self._rest += self._view[:nbytes]
            self._read_requests(self._rest, 0, self._searched, len(self._rest))
            if nbytes == RECEIVE_BYTES:
                self._yield_to_others()
        elif state == _CHUNKED:
            used = self._feed(self._view[:nbytes])
            if used < nbytes and self._state == _HEADS:
                self._read_requests(self._buffer, used, used, nbytes)
            if nbytes == RECEIVE_BYTES:
                self._yield_to_others()

    def _receive_small_body(self, nbytes: int) -> None:
        head, buffer = self._head, self._buffer
        # Before the handler: its response may be the last one, which ``_is_over`` must see.
        self._end_body()
        if nbytes == head.content_length:
            self._dispatch(head, buffer[:nbytes])
            return
        # It came in pieces, or with the next request behind it.
        end = self._begin_body(head, buffer, 0, nbytes)
        if end < nbytes:
            self._read_requests(buffer, end, end, nbytes)

    def _receive_body(self, nbytes: int) -> None:
        body = self._body
        self._service.arriving_bytes += nbytes
        try:
            whole = body.advance(nbytes)
        except MemoryError:
            self._fail_for_memory()
            return
        self._target = body.target
        if whole:
            head = self._head
            self._end_body()
            self._dispatch(head, body.memory)
        elif self._service.arriving_bytes > self._service.limits.max_arriving_bytes:
            self._check_arriving()

    def _feed(self, data: memoryview) -> int:
        """Feed bytes to the chunked body; returns how many were used."""
        decoder, service = self._decoder, self._service
        before = len(decoder.body)
        try:
            used = decoder.feed(data)
        except HttpError as error:
            # Counted before the failure, which subtracts all that the decoder holds.
            service.arriving_bytes += len(decoder.body) - before
            self._fail(error.status, error.message)
            return len(data)
        service.arriving_bytes += len(decoder.body) - before
        if service.arriving_bytes > service.limits.max_arriving_bytes and not decoder.done:
            self._check_arriving()
        if decoder.done:
            head, body = self._head, decoder.body
            self._end_body()
            # Slices of a view are not copies.
            self._dispatch(head, body if len(body) <= SMALL_BODY_BYTES else memoryview(body))
        return used

    def _end_body(self) -> None:
        self._forget_body()
        self._enter(_DISCARD if self.halted & FINAL else _HEADS)

    def _forget_body(self) -> None:
        self._service.arriving_bytes -= self._arrived_bytes()
        self._target = self._view
        self._body = _NO_BODY
        self._decoder = _NO_CHUNKS
        self._head = REFUSED_HEAD

    # The end of the connection.

    def _is_over(self) -> bool:
        return bool(self.halted & FINAL) and not self.pending and self._state == _DISCARD

    def drain(self) -> None:
        """Take no further request; close when the requests under way are answered, at once when there are none."""
        # The request has begun, so it is read to its end and gets its response.
        if self._state in _IN_BODY:
            self.halted |= FINAL
            self._wait(self._find_quiet_limit_s())
            return
        ending = self._is_over()
        self._read_no_more()
        if ending:
            # It lingers for its peer already; the server does not wait so long.
            self._wait(self._service.limits.drain_linger_s)
        elif not self.pending:
            self._transport.close()

    def _read_no_more(self) -> None:
        self.halted |= FINAL
        self._rest = bytearray()
        self._forget_body()
        self._enter(_DISCARD)
        self._unpause()

    # Waiting.

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            # A connection that yields has paused the transport already.
            if not self._yields:
                self._transport.pause_reading()

    def _unpause(self) -> None:
        if self._paused:
            self._paused = False
            if not (self._yields or self.lost or self._transport.is_closing()):
                self._transport.resume_reading()

    def _yield_to_others(self) -> None:
        """Read on in the next turn of the loop: libuv fills a buffer up to 32 times before it polls other connections.

        A body is received straight into its own memory, which costs little: it is not interrupted.
        """
        if self._target is self._view and not (
            self._paused or self._yields or self.lost or self._transport.is_closing()
        ):
            self._yields = True
            self._transport.pause_reading()
            self._service.call_soon(self.read_on)

    def read_on(self) -> None:
        """Resume reading: the other connections had their turn."""
        if not self._yields:
            return
        self._yields = False
        if not (self._paused or self.lost or self._transport.is_closing()):
            self._transport.resume_reading()

    def _resume(self) -> None:
        if self._paused and not self.halted and len(self.pending) <= RESUME_UNANSWERED:
            self._unpause()
            self._wait(self._find_quiet_limit_s())
            self._read_requests(self._rest, 0, 0, len(self._rest))

    def _enter(self, state: int) -> None:
        self._state = state
        self._wait(self._find_quiet_limit_s())

    def _find_quiet_limit_s(self) -> int:
        """After how many quiet seconds ``check_time`` is to look at this connection."""
        limits = self._service.limits
        if self._state == _PARTIAL:
            return limits.head_s
        if self._state in _IN_BODY:
            return self._body_grace_s()
        if self._is_over():
            return limits.drain_linger_s if self._service.draining else limits.linger_s
        return limits.idle_s

    def check_time(self) -> None:
        """Called by the sweep when nothing happened for ``quiet_limit_s`` seconds."""
        # In this order: a peer that takes nothing is judged by that, whatever it has begun to send.
        if self._waits_for_reader():
            self._check_reader()
        elif self._state in _IN_BODY:
            self._check_body_rate()
        elif self._state == _PARTIAL and not self._paused:
            self._fail(408, f"request head did not arrive within {self._service.limits.head_s} s")
        elif self.pending:
            # The models take their time; the peer is not to blame.
            self.quiet = 0
        else:
            self._transport.close()

    def _waits_for_reader(self) -> bool:
        if self.halted & CHOKED:
            return True
        return self._state in (_HEADS, _DISCARD) and self._transport.get_write_buffer_size() > 0

    def _check_reader(self) -> None:
        """Drop a peer that has taken nothing of its responses for the idle time."""
        idle_s = self._service.limits.idle_s
        unsent = self._transport.get_write_buffer_size()
        # The patience may be left from a shorter wait; then the idle time begins only now.
        if unsent < self._unsent or self.quiet_limit_s < idle_s:
            self._unsent = unsent
            self._wait(idle_s)
        else:
            log.info("dropped a connection that took no data for %d s", idle_s)
            self._transport.abort()

    def _body_grace_s(self) -> int:
        # A peer that has stopped sending must not delay the end of the server.
        limits = self._service.limits
        return limits.drain_linger_s if self._service.draining else limits.body_grace_s

    def _check_body_rate(self) -> None:
        limits = self._service.limits
        have = self._arrived_bytes()
        allowed_s = self._body_grace_s() + have // limits.min_body_bytes_per_s
        if self.quiet >= allowed_s:
            self._fail(408, f"request body came too slowly: {have} bytes in {self.quiet} s")
        else:
            self.quiet_limit_s = allowed_s

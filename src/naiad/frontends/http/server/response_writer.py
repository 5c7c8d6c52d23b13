"""The writing half of one HTTP/1.1 connection: responses leave in the order of their requests.

``connection.py`` has the reading half, which subclasses this one.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from naiad.errors import InternalError
from naiad.eventloop.large_writes import LARGE_BYTES
from naiad.frontends.http.server.exchange import Exchange, PartialResponse
from naiad.frontends.http.server.streaming_response import StreamingResponse
from naiad.wire.http1.head import CONTINUE, RequestHead, adapt_response

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from naiad.frontends.http.server.state import HttpService
    from naiad.wire.http1.head import Part

# The reasons to read no further request: the peer does not take its responses; the connection ends after the last one;
# a response waits for a later turn of the loop.
CHOKED, FINAL, DEFERRED = 1, 2, 4

REFUSED_HEAD: Final = RequestHead("", "", "", (1, 1), {"connection": "close"})
_INTERIM_HEAD: Final = RequestHead("", "", "", (1, 1), {})


class ResponseWriter(asyncio.BufferedProtocol, ABC):
    """The output of a connection, and its end.

    Attributes:
        pending: exchanges without a written response, oldest first; responses leave in this order.
        halted: non-zero while no further request may be taken from the input.
        lost: the transport is gone.
        quiet: seconds since the last response or since the current wait began; the listener's sweep counts it up and
            calls ``check_time`` once it reaches ``quiet_limit_s``.
    """

    __slots__ = (
        "_deferred",
        "_eof",
        "_service",
        "_transport",
        "_unsent",
        "halted",
        "lost",
        "pending",
        "quiet",
        "quiet_limit_s",
        "write",
    )

    _transport: asyncio.Transport
    write: Callable[[Part], None]

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._deferred: list[list[Part]] = []
        self._eof = False
        self._unsent = 0
        self.pending: deque[Exchange] = deque()
        self.halted = 0
        self.lost = False
        self.quiet = 0
        self.quiet_limit_s = service.limits.idle_s

    # The reading half.

    @abstractmethod
    def drain(self) -> None:
        """Take no further request; close after the responses to the requests in flight, at once if there are none."""

    @abstractmethod
    def _is_over(self) -> bool:
        """Whether no request is read any more, and all have their responses."""

    @abstractmethod
    def _read_no_more(self) -> None:
        """Drop all further input, and notice only its end."""

    @abstractmethod
    def _resume(self) -> None:
        """Resume the requests that waited for responses to leave."""

    @abstractmethod
    def _find_quiet_limit_s(self) -> int:
        """After how many quiet seconds ``check_time`` is to look at this connection."""

    def _wait(self, seconds: int) -> None:
        self.quiet = 0
        self.quiet_limit_s = seconds

    # The transport's side.

    def pause_writing(self) -> None:
        self.halted |= CHOKED
        # Measured from here: a peer that takes less than everything in the idle time still makes progress.
        self._unsent = self._transport.get_write_buffer_size()
        self._service.count_waiting(self._unsent)
        self._wait(self._service.limits.idle_s)

    def resume_writing(self) -> None:
        self.halted &= ~CHOKED
        # Before the reading resumes, which may write and pause again.
        self._wait(self._find_quiet_limit_s())
        self._resume_all()

    def _can_half_close(self) -> bool:
        """Whether one direction can end alone, which TLS does not allow."""
        return self._transport.get_extra_info("sslcontext") is None

    def peer_host(self) -> str:
        """The address of the peer; "" when it is not known."""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    # Responses.

    def write_parts(self, parts: list[Part]) -> None:
        """Write one response: small ones as one piece, large ones without copying them, perhaps in a later turn."""
        size = sum(map(len, parts))
        if self._deferred:
            # Behind the response that waits.
            self._deferred.append(parts)
        elif size < LARGE_BYTES:
            # Copying little costs less than several writes.
            self.write(b"".join(parts))
        elif self._service.large_writes.has_room:
            self._write_large(parts, size)
        else:
            self._deferred.append(parts)
            self.halted |= DEFERRED
            self._service.large_writes.wait(self._take_turn)

    def _write_large(self, parts: list[Part], size: int) -> None:
        self._service.large_writes.spend(size)
        if self._service.gathers_writes:
            self._transport.writelines(parts)
        else:
            # asyncio's writelines may ignore back-pressure: see ``HttpService.gathers_writes``.
            for part in parts:
                self.write(part)

    def _write_deferred(self) -> None:
        """Write the response that waits for its turn, and what came behind it."""
        deferred, self._deferred = self._deferred, []
        self.halted &= ~DEFERRED
        for parts in deferred:
            self._write_large(parts, sum(map(len, parts)))

    def _take_turn(self) -> None:
        if self.lost:
            self._deferred.clear()
        elif self._deferred:
            self._write_deferred()
            self._resume_all()

    def _resume_all(self) -> None:
        """Resume all that waited for responses to leave."""
        self._resume()
        if self.pending and type(response := self.pending[0].response) is StreamingResponse:
            response.look()

    def respond_slowly(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """Take a response that cannot be written unchanged, or not yet."""
        if self.lost:
            return
        if exchange.response is not None or exchange not in self.pending:
            head = exchange.head
            raise InternalError(f"{head.method} {head.target} was answered twice; a handler must send exactly once")
        exchange.response = parts
        # It leads back to the exchange: the two should not need the garbage collector.
        exchange.owner = None
        if exchange is not self.pending[0]:
            self._service.count_waiting(_size_of(parts))
        self.write_pending()

    def write_pending(self) -> None:
        """Write the responses that are due, oldest first, and resume the requests that waited for them."""
        pending = self.pending
        while pending and (response := pending[0].response) is not None:
            if type(response) is StreamingResponse:
                is_complete = response.write_on()
                if not (pending and pending[0].response is response):
                    # The callback that learned of room has ended this response, and a nested call has removed it.
                    continue
                if not is_complete:
                    break
                # Cut by hand: the streaming response refers to its exchange.
                pending.popleft().response = None
                continue
            head = pending.popleft().head
            self.quiet = 0
            self._write_response(head, cast("Sequence[Part]", response))
        if self._is_over():
            self._say_goodbye()
        else:
            self._resume()

    def _write_response(self, head: RequestHead, response: Sequence[Part]) -> None:
        if head is not _INTERIM_HEAD:
            keep_alive = "keep-alive" if head.version == (1, 0) else ""
            # After the exchange was taken out: so the last response itself announces the end.
            option = "close" if self._is_over() else keep_alive
            without_body = head.method == "HEAD"
            if option or without_body or head.extra_fields:
                response = adapt_response(response, option, without_body, head.extra_fields)
        self.write_due(list(response))

    def write_due(self, parts: list[Part]) -> None:
        """Write a response that is due, or more of it."""
        self.write_parts(parts)
        if self.halted & CHOKED:
            self._unsent = self._transport.get_write_buffer_size()
            self._service.count_waiting(sum(map(len, parts)))
        else:
            self.quiet = 0

    def unsent_bytes(self) -> int:
        """Bytes of responses that the peer has not taken yet."""
        deferred = sum(len(part) for parts in self._deferred for part in parts)
        return self._transport.get_write_buffer_size() + deferred

    def backlog_bytes(self) -> int:
        """Bytes of responses that the peer has not taken, or that wait for earlier responses."""
        kept = self._transport.get_write_buffer_size()
        # Called for every connection once per second: most have nothing that waits.
        if len(self.pending) > 1 or kept:
            kept += sum(_size_of(e.response) for e in self.pending if e.response is not None)
        return kept

    def _pass_interim(self) -> None:
        """Request the body that the peer waits to send (``100 Continue``)."""
        # As an exchange of its own: it must not overtake the responses to earlier requests.
        interim = Exchange(self, _INTERIM_HEAD)
        self.pending.append(interim)
        interim.send(CONTINUE)

    # The end of the connection.

    def abort(self) -> None:
        """Drop the connection and what it has not sent."""
        self._transport.abort()

    def _fail(self, status: int, message: str, retry: bool = False) -> None:
        """Answer malformed bytes or a request that is not read, after the responses that are still due.

        Then the connection ends. ``retry``: a later request may be served.
        """
        # First: the error then counts as the last response, and announces the end of the connection.
        self._read_no_more()
        exchange = Exchange(self, REFUSED_HEAD)
        self.pending.append(exchange)
        self._send_error(exchange, status, message, (("Retry-After", "1"),) if retry or status == 503 else ())

    def _send_error(self, exchange: Exchange, status: int, text: str, extra: Sequence[tuple[str, str]] = ()) -> None:
        exchange.send_status(status, "application/json", self._service.error_json(status, text), extra)

    def _say_goodbye(self) -> None:
        """Close so that the peer reads the last response: closing with unread input would reset the connection."""
        self._write_deferred()
        if self._eof or not self._can_half_close():
            self._transport.close()
        elif not self._transport.is_closing():
            # Half of the connection: the peer sees the end, and its further input is read and dropped until it closes.
            self._transport.write_eof()
            self._unsent = self._transport.get_write_buffer_size()
            self._wait(self._find_quiet_limit_s())


def _size_of(response: Sequence[Part] | PartialResponse) -> int:
    return (
        response.waiting_bytes
        if type(response) is StreamingResponse
        else sum(map(len, cast("Sequence[Part]", response)))
    )

"""The state that the connections of one HTTP listener share: application, limits, memo of heads, receive buffer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import orjson

from naiad.eventloop.large_writes import LargeWrites
from naiad.frontends.net.listener import ServedConnection
from naiad.scheduling.admission import RequestBudget
from naiad.wire.http1.head import HeadMemo, HttpError, RequestHead
from naiad.worker.ipc.receive_pools import ReceivePools

if TYPE_CHECKING:
    from naiad.frontends.http.server.exchange import Application

    TakeHttp2 = Callable[[asyncio.Transport, bytes], None]
    """Takes a connection that begins as HTTP/2, with all the bytes that have arrived."""

    ErrorJson = Callable[[int, str], bytes]
    """Makes the document of an error with a status and a text."""

log = logging.getLogger(__name__)

RECEIVE_BYTES: Final = 65_536
MAX_BODY_BYTES: Final = 1 << 26
CHECKS_PER_BOUND: Final = 8
"""The number of times that the waiting bytes are added up while ``max_waiting_bytes`` more begin to wait."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one listener and its connections.

    Attributes:
        max_body_bytes: ``--http-max-input-size``; see ``RequestHead.limited_bytes`` for what it bounds.
        too_large_status: the status for a larger body: 400 as in the reference, or HTTP's own 413.
        max_connections: further ones get a 503 and are closed.
        idle_s: how long a connection may stay open between requests, and how long a peer may take no data.
        head_s: how long a request head may take from its first byte on.
        body_grace_s, min_body_bytes_per_s: a body may take the grace time, and longer while it keeps this rate.
        linger_s: how long input is read and dropped after the last response, so that the peer can read it.
        drain_linger_s: the same while the server stops, or for a refused connection.
        max_arriving_bytes: bytes of large bodies that are not whole yet, of all connections together.
        max_waiting_bytes: bytes of responses that wait for their peers, of all connections together; beyond it the
            connections with the most are dropped.
    """

    max_body_bytes: int = MAX_BODY_BYTES
    too_large_status: int = 400
    max_connections: int = 10_000
    idle_s: int = 600
    head_s: int = 30
    body_grace_s: int = 30
    min_body_bytes_per_s: int = 65_536
    linger_s: int = 30
    drain_linger_s: int = 2
    max_arriving_bytes: int = 1 << 32
    max_waiting_bytes: int = 1 << 32


class BoundedConnection(ServedConnection, Protocol):
    """A connection as its listener's service bounds it.

    Attributes:
        lost: the transport is gone.
    """

    lost: bool

    def backlog_bytes(self) -> int:
        """Bytes of responses that the peer has not taken, or that wait for earlier ones."""

    def forget_head(self) -> None:
        """Ask the application anew for the next request."""


def protocol_error(status: int, text: str) -> bytes:
    """The error document of the v2 protocol, which is the same for each ``status``."""
    return orjson.dumps({"error": text})


class HttpService:
    """The common part of a listener's connections.

    Attributes:
        shared_buffer: all connections receive into ``buffer``, because the loop reads and delivers in one step.
        draining: new connections are dropped.
        gathers_writes: the loop's ``writelines`` takes part in back-pressure. That of asyncio does not in several
            releases of Python 3.12 and 3.13 (CVE-2024-12254).
        on_empty: called when the last connection is gone.
        pools: memory for bodies that do not fit the buffer.
        budget: the bounds on requests in flight.
        arriving_bytes: bytes received of bodies that are not whole yet.
        take_http2: takes connections that begin as HTTP/2; None refuses them.
        call_soon: schedules a callback for the next turn of the loop.
        large_writes: those of all connections.
        error_json: the error document for a status and a text, of what the connections themselves refuse.
    """

    __slots__ = (
        "_added_bytes",
        "application",
        "arriving_bytes",
        "budget",
        "buffer",
        "call_soon",
        "connections",
        "draining",
        "error_json",
        "gathers_writes",
        "large_writes",
        "limits",
        "memo",
        "on_empty",
        "pools",
        "shared_buffer",
        "take_http2",
    )

    def __init__(
        self,
        application: Application,
        limits: HttpLimits,
        take_http2: TakeHttp2 | None = None,
        budget: RequestBudget | None = None,
        error_json: ErrorJson = protocol_error,
    ) -> None:
        self.application = application
        self.error_json = error_json
        self.limits = limits
        self.memo = HeadMemo(complete=self._complete)
        self.buffer = bytearray(RECEIVE_BYTES)
        self.pools = ReceivePools()
        self.budget = budget or RequestBudget()
        self.arriving_bytes = 0
        self._added_bytes = 0
        self.shared_buffer = True
        self.gathers_writes = True
        self.connections: set[BoundedConnection] = set()
        self.draining = False
        self.on_empty: Callable[[], None] | None = None
        self.call_soon: Callable[[Callable[[], object]], object] = _call_soon
        self.large_writes = LargeWrites(lambda callback: self.call_soon(callback))
        self.take_http2 = take_http2

    def receive_buffer(self) -> bytearray:
        """The buffer that a new connection receives into."""
        return self.buffer if self.shared_buffer else bytearray(RECEIVE_BYTES)

    def serve(self, application: Application) -> None:
        """Hand requests to ``application`` from the next one on."""
        self.application = application
        self.forget_heads()

    def forget_heads(self) -> None:
        """Ask the application anew for every further request."""
        self.memo.clear()
        # Each connection keeps its last head beside the memo.
        for connection in self.connections:
            connection.forget_head()

    def age(self, seconds: int) -> None:
        """Note that time has passed."""
        self.pools.age(seconds)
        self._bound_waiting()

    def count_waiting(self, size: int) -> None:
        """Note that ``size`` more bytes of responses wait: the second between two sweeps can fill a small memory."""
        self._added_bytes += size
        if self._added_bytes > self.limits.max_waiting_bytes // CHECKS_PER_BOUND:
            self._added_bytes = 0
            # Not at once: the connection that calls this is in the middle of a write, and may be dropped.
            self.call_soon(self._bound_waiting)

    def _complete(self, head: RequestHead) -> None:
        """Ask the application about a new head.

        Raises:
            HttpError: the application refuses it, or its body may not be as long as it says.
        """
        head.handler = self.application(head)
        # Where the response does not depend on the body, no large one is read.
        if not head.refused:
            self._check_length(head)

    def _check_length(self, head: RequestHead) -> None:
        length, limit = head.content_length or 0, self.limits.max_body_bytes
        if length <= limit:
            return
        if head.limited_bytes is None or head.limited_bytes > limit:
            raise HttpError(self.limits.too_large_status, _too_large_text(head, length, limit))
        # What the limit does not count has to fit in flight.
        if length > max(limit, self.budget.max_bytes):
            raise HttpError(
                self.limits.too_large_status,
                f"request body of {length} bytes exceeds the maximum allowed input size of {self.budget.max_bytes} "
                "bytes, which unanswered requests may hold together. Use --max-in-flight-bytes to increase the limit.",
            )

    def check_arrival(self, head: RequestHead, size: int) -> None:
        """Check that a large body of ``size`` bytes may begin to arrive.

        Raises:
            QueueFullError: it would have to be refused in the end, or too many arrive.
        """
        if head.needs_room:
            self.budget.check(size)
        # A single body may always arrive: its own limit bounds it.
        if self.arriving_bytes and self.arriving_bytes + size > self.limits.max_arriving_bytes:
            raise self.budget.refuse(
                "body",
                f"the request bodies that are arriving hold {self.arriving_bytes} bytes, and one of {size} bytes more "
                f"would be beyond {self.limits.max_arriving_bytes}; try again later, or raise --max-in-flight-bytes",
            )

    def _bound_waiting(self) -> None:
        waiting = [(c.backlog_bytes(), c) for c in self.connections if not c.lost]
        together = sum(size for size, _ in waiting)
        if together <= self.limits.max_waiting_bytes:
            return
        # Those with the most first: then as few peers as possible lose their connection.
        for size, connection in sorted(waiting, key=lambda found: found[0], reverse=True):
            if together <= self.limits.max_waiting_bytes:
                break
            together -= size
            log.warning("dropped a connection: the server kept %d bytes of answers that it did not take", size)
            connection.abort()

    def forget(self, connection: BoundedConnection) -> None:
        """Called by a connection that was lost."""
        self.connections.discard(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()


def _call_soon(callback: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def _too_large_text(head: RequestHead, length: int, limit: int) -> str:
    """The reference's text for what the body is, as far as its head says."""
    if "content-encoding" in head.headers:
        found = f"request body of {length} bytes exceeds the maximum allowed input size"
    elif head.first_part_bytes == 0:
        # A request without a JSON part.
        found = f"Raw input has a byte_size ({length} bytes) that exceeds the maximum allowed value"
    else:
        size = length if head.limited_bytes is None else min(head.limited_bytes, length)
        found = f"request JSON size of {size} bytes exceeds the maximum allowed input size"
    return f"{found} of {limit} bytes. Use --http-max-input-size to increase the limit."

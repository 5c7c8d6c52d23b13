"""What the connections of one gRPC listener share: the methods, the limits and the receive buffer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from naiad.clock import Clock, SystemClock
from naiad.frontends.grpc.rpc.deadlines import Deadlines
from naiad.telemetry.metrics.server_statistics import CancelCounts
from naiad.tensor.buffer_pool import BufferPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.frontends.access.gate import Gate
    from naiad.frontends.grpc.rpc.call import Methods
    from naiad.frontends.grpc.server.connection import GrpcConnection
    from naiad.frontends.grpc.server.h2_call import H2Call

RECEIVE_BYTES: Final = 1 << 18
CHECKS_PER_BOUND: Final = 8
"""How often what waits is added up while as much begins to wait as may wait."""
MIN_STREAMS: Final = 100
MAX_STREAMS_TOGETHER: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Bounds and times of one listener and its connections. Times in ms have a resolution of one second.

    Attributes:
        max_message_bytes: largest request message, also once decompressed.
        max_partial_bytes: of all messages together that have begun and are not whole yet.
        max_connections: further ones are told so and closed.
        max_streams: open calls per connection. A connection that comes when there are many is told a smaller number,
            its share of ``MAX_STREAMS_TOGETHER`` but at least ``MIN_STREAMS``; those before it keep theirs.
        keepalive_time_ms: a connection that was quiet for so long is pinged.
        keepalive_timeout_ms: and closed when it does not answer the ping within this time.
        keepalive_permit_without_calls: connections without an open call are pinged too, and may ping more often.
        max_pings_without_data: how many pings are sent while nothing else is.
        min_ping_interval_ms: a client that pings more often than this, more than ``max_ping_strikes`` times, is sent
            away.
        max_connection_age_ms: a connection is asked to end after this time; 0 for never.
        max_connection_age_grace_ms: and closed after this time more; 0 for never.
        compression_level: of the answers to inference requests: ``none``, ``low``, ``medium`` or ``high``.
        start_s: how long a connection may take for its preface and its first settings.
        stall_s: how long a peer that has begun a frame may stand still.
        unread_s: how long a peer may take nothing of its answers, and drain_unread_s while the server stops.
        max_waiting_bytes: of the answers that wait for their peers, of all connections together; beyond it those with
            the most are ended.
        message_grace_s, min_message_bytes_per_s: a message may take the grace time, and longer at this rate or more.
        drain_linger_s: how long a connection without calls may stay open while the server stops.
    """

    max_message_bytes: int = 2**31 - 1
    max_partial_bytes: int = 2**31 + (1 << 20)
    max_connections: int = 10_000
    max_streams: int = 4096
    keepalive_time_ms: int = 7_200_000
    keepalive_timeout_ms: int = 20_000
    keepalive_permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_ping_interval_ms: int = 300_000
    max_ping_strikes: int = 2
    max_connection_age_ms: int = 0
    max_connection_age_grace_ms: int = 0
    compression_level: str = "none"
    start_s: int = 30
    stall_s: int = 120
    unread_s: int = 600
    drain_unread_s: int = 5
    max_waiting_bytes: int = 1 << 32
    message_grace_s: int = 30
    min_message_bytes_per_s: int = 65_536
    drain_linger_s: int = 2


class GrpcService:
    """The common part of a listener's connections.

    Attributes:
        shared_buffer: all connections receive into ``buffer``, because the loop reads and delivers in one step.
        draining: new connections and new calls are turned away.
        gathers_writes: the loop's ``writelines`` takes part in back-pressure.
        deadlines: of all open calls.
        gate: who may call; None for everybody.
        on_empty: called when the last connection is gone.
        worker: one thread for what would hold the loop up: large messages are compressed and decompressed one by one,
            so that many small ones that grow large cannot fill the memory together.
        pool: memory for messages that do not lie in the buffer as a whole.
        cancelled: counts the calls that end before their answer.
        partial_bytes: what has arrived of messages that are not whole yet.
        partial_calls: the calls that these belong to, and for how many seconds.
    """

    __slots__ = (
        "_added_bytes",
        "buffer",
        "cancelled",
        "clock",
        "connections",
        "deadlines",
        "draining",
        "gate",
        "gathers_writes",
        "limits",
        "methods",
        "on_empty",
        "partial_bytes",
        "partial_calls",
        "pool",
        "shared_buffer",
        "worker",
    )

    def __init__(
        self,
        methods: Methods,
        limits: GrpcLimits,
        clock: Clock | None = None,
        gate: Gate | None = None,
        cancelled: CancelCounts | None = None,
    ) -> None:
        self.methods = methods
        self.gate = gate
        self.limits = limits
        self.cancelled = CancelCounts() if cancelled is None else cancelled
        self.clock = clock or SystemClock()
        self.buffer = bytearray(RECEIVE_BYTES)
        self.pool = BufferPool()
        self.shared_buffer = True
        self.gathers_writes = True
        self.connections: set[GrpcConnection] = set()
        self.draining = False
        self.on_empty: Callable[[], None] | None = None
        self.partial_bytes = 0
        self._added_bytes = 0
        self.partial_calls: dict[H2Call, int] = {}
        self.deadlines = Deadlines(self.clock)
        self.worker = ThreadPoolExecutor(1, "naiad-grpc")

    def receive_buffer(self) -> bytearray:
        """Where a new connection receives."""
        return self.buffer if self.shared_buffer else bytearray(RECEIVE_BYTES)

    def streams_per_connection(self) -> int:
        """How many calls one more connection may have open."""
        share = MAX_STREAMS_TOGETHER // (len(self.connections) + 1)
        return min(self.limits.max_streams, max(MIN_STREAMS, share))

    def age(self, seconds: int) -> None:
        """Called by the sweep: note that time has passed, and give up calls whose message comes too slowly."""
        self.pool.age(seconds)
        self._bound_waiting()
        for call, waited_s in list(self.partial_calls.items()):
            self.partial_calls[call] = waited_s + seconds
            if not call.check_rate(waited_s + seconds) and call in self.partial_calls:
                self.partial_calls[call] = 0

    def count_waiting(self, size: int, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """Note that ``size`` bytes more of answers wait: many can come between two sweeps.

        ``call_soon`` has something done in the next turn of the loop.
        """
        self._added_bytes += size
        if self._added_bytes > self.limits.max_waiting_bytes // CHECKS_PER_BOUND:
            self._added_bytes = 0
            call_soon(self._bound_waiting)

    def forget_heads(self) -> None:
        """Ask the gate anew for every further call."""
        for connection in self.connections:
            connection.core.forget_heads()

    def _bound_waiting(self) -> None:
        together = sum(c.core.waiting_bytes for c in self.connections)
        if together <= self.limits.max_waiting_bytes:
            return
        for connection in sorted(self.connections, key=lambda c: c.core.waiting_bytes, reverse=True):
            if together <= self.limits.max_waiting_bytes:
                break
            waiting = connection.core.waiting_bytes
            together -= waiting
            connection.give_up(f"the server keeps answers of {waiting} bytes that are not taken")

    def forget(self, connection: GrpcConnection) -> None:
        """Called by a connection that was lost."""
        self.connections.discard(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()

    def close(self) -> None:
        """Give back the timer and the thread; the last call."""
        self.deadlines.close()
        self.worker.shutdown(wait=False, cancel_futures=True)

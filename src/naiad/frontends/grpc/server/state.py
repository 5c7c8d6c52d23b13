"""The state that the connections of one gRPC listener share: the methods, the limits and the receive buffer."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from naiad.clock import Clock, SystemClock
from naiad.eventloop.large_writes import LargeWrites
from naiad.frontends.grpc.rpc.deadlines import Deadlines
from naiad.frontends.net.listener import ServedConnection
from naiad.telemetry.metrics.server_statistics import CancelCounts
from naiad.wire.http2.receive_buffer import ReceiveBuffer
from naiad.worker.ipc.receive_pools import ReceivePools

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.frontends.access.gate import Gate
    from naiad.frontends.grpc.rpc.call import Methods
    from naiad.frontends.grpc.rpc.limits import GrpcLimits
    from naiad.wire.http2.connection import Http2Connection

RECEIVE_BYTES: Final = 1 << 18
CHECKS_PER_BOUND: Final = 8
"""The number of times that the waiting bytes are added up while ``max_waiting_bytes`` more begin to wait."""
# RFC 9113, section 6.5.2, recommends no smaller limit than this.
MIN_STREAMS: Final = 100
MAX_STREAMS_TOGETHER: Final = 1 << 17


class PartialCall(Protocol):
    """A call with an incomplete message."""

    def check_rate(self, waited_s: int) -> bool:
        """Whether a message that began ``waited_s`` seconds ago still arrives, and fast enough."""


class BoundedGrpcConnection(ServedConnection, Protocol):
    """A connection as its listener's service bounds it."""

    @property
    def core(self) -> Http2Connection:
        """The HTTP/2 connection without its socket."""

    def give_up(self, reason: str) -> None:
        """End the connection because of its peer."""


class GrpcService:
    """The common part of a listener's connections.

    Attributes:
        shared_buffer: all connections receive into ``buffer``, because the loop reads and delivers in one step.
        draining: new connections and new calls are turned away.
        gathers_writes: the loop's ``writelines`` takes part in back-pressure.
        deadlines: of all open calls.
        gate: decides who may call; None admits everybody.
        on_empty: called when the last connection is gone.
        worker: one thread that compresses and decompresses large messages, which would hold the loop up. It takes one
            at a time, so that many small messages that grow large cannot fill the memory together.
        pools: memory for messages that do not lie in the buffer as a whole.
        cancelled: counts the calls that end before their response.
        partial_bytes: the received bytes of incomplete messages.
        partial_calls: the calls with such messages, each with the seconds since the message began.
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
        "large_writes",
        "limits",
        "methods",
        "on_empty",
        "partial_bytes",
        "partial_calls",
        "pools",
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
        self.large_writes = LargeWrites(lambda callback: asyncio.get_running_loop().call_soon(callback))
        self.buffer = ReceiveBuffer(RECEIVE_BYTES)
        self.pools = ReceivePools()
        self.shared_buffer = True
        self.gathers_writes = True
        self.connections: set[BoundedGrpcConnection] = set()
        self.draining = False
        self.on_empty: Callable[[], None] | None = None
        self.partial_bytes = 0
        self._added_bytes = 0
        self.partial_calls: dict[PartialCall, int] = {}
        self.deadlines = Deadlines(self.clock)
        self.worker = ThreadPoolExecutor(1, "naiad-grpc")

    def receive_buffer(self) -> ReceiveBuffer:
        """The buffer that a new connection receives into."""
        return self.buffer if self.shared_buffer else ReceiveBuffer(RECEIVE_BYTES)

    def streams_per_connection(self) -> int:
        """The calls that one more connection may have open."""
        # Open calls take memory, so connections among many get fewer. Earlier ones keep the limit that they were sent.
        share = MAX_STREAMS_TOGETHER // (len(self.connections) + 1)
        return min(self.limits.max_streams, max(MIN_STREAMS, share))

    def age(self, seconds: int) -> None:
        """Called by the sweep: note that time has passed, and end calls whose message comes too slowly."""
        self.pools.age(seconds)
        self._bound_waiting()
        # A copy: ``check_rate`` may end the call, which leaves the dict.
        for call, waited_s in list(self.partial_calls.items()):
            self.partial_calls[call] = waited_s + seconds
            if not call.check_rate(waited_s + seconds) and call in self.partial_calls:
                # The message waits for the call, not for its sender: its time starts again afterwards.
                self.partial_calls[call] = 0

    def count_waiting(self, size: int, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """Note that ``size`` more bytes of responses wait: the second between two sweeps can fill a small memory.

        ``call_soon`` schedules a callback for the next turn of the loop: the connection that calls is writing.
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
        # Those with the most first: then as few peers as possible lose their connection.
        for connection in sorted(self.connections, key=lambda c: c.core.waiting_bytes, reverse=True):
            if together <= self.limits.max_waiting_bytes:
                break
            waiting = connection.core.waiting_bytes
            together -= waiting
            connection.give_up(f"the server keeps answers of {waiting} bytes that are not taken")

    def forget(self, connection: BoundedGrpcConnection) -> None:
        """Called by a connection that was lost."""
        self.connections.discard(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()

    def close(self) -> None:
        """Release the timer and the thread; nothing is called afterwards."""
        self.deadlines.close()
        self.worker.shutdown(wait=False, cancel_futures=True)

"""The listener of the gRPC front end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from naiad.clock import SystemClock
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.connection import GrpcConnection
from naiad.frontends.grpc.server.state import GrpcService
from naiad.frontends.net.listener import Listener

if TYPE_CHECKING:
    import asyncio
    from ssl import SSLContext

    from naiad.clock import Clock
    from naiad.frontends.access.gate import Gate
    from naiad.frontends.grpc.rpc.call import Methods
    from naiad.telemetry.metrics.server_statistics import CancelCounts


class GrpcListener(Listener):
    """Accepts HTTP/2 connections and serves ``methods`` on them; ``Listener`` says the rest.

    ``port`` None opens no socket: then all connections come through ``take``.
    """

    def __init__(
        self,
        methods: Methods,
        host: str,
        port: int | None,
        *,
        limits: GrpcLimits | None = None,
        reuse_port: bool = False,
        clock: Clock | None = None,
        option: str = "--grpc-port",
        ssl: SSLContext | None = None,
        gate: Gate | None = None,
        cancelled: CancelCounts | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._grpc = GrpcService(methods, limits or GrpcLimits(), clock, gate, cancelled)
        connect = partial(GrpcConnection, self._grpc)
        super().__init__(self._grpc, connect, host, port, option=option, reuse_port=reuse_port, clock=clock, ssl=ssl)

    def take(self, transport: asyncio.Transport, data: bytes) -> None:
        """Serve a connection that another listener accepted; ``data`` is all it has received."""
        connection = GrpcConnection(self._grpc)
        transport.set_protocol(connection)
        # The transport calls this for its first protocol only.
        connection.connection_made(transport)
        connection.feed(data)

    def abort(self) -> None:
        """Drop all open connections, with the responses that were not sent."""
        super().abort()
        self._grpc.close()

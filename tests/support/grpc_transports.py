"""Both transports of gRPC, serving a table of methods on a free port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from naiad.frontends.grpc.grpcio.transport import GrpcioTransport
from naiad.frontends.grpc.rpc.call import Methods
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.listener import GrpcListener

TRANSPORTS = ("naiad", "grpcio")
DRAIN_S = 5.0
Transport = GrpcListener | GrpcioTransport


def make_transport(kind: str, methods: Methods, limits: GrpcLimits | None = None) -> Transport:
    """A transport that is not started."""
    made = GrpcListener if kind == "naiad" else GrpcioTransport
    return made(methods, "127.0.0.1", 0, limits=limits)


@contextlib.asynccontextmanager
async def carried(kind: str, methods: Methods, limits: GrpcLimits | None = None) -> AsyncIterator[Transport]:
    """A transport that serves; it must have ended in time and left no task behind."""
    before = asyncio.all_tasks()
    transport = make_transport(kind, methods, limits)
    await transport.start()
    try:
        yield transport
        assert await transport.drain(DRAIN_S)
    finally:
        transport.abort()
    async with asyncio.timeout(DRAIN_S):
        while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
            await asyncio.wait(left)

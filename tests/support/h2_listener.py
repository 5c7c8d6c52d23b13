"""A gRPC listener on a socket of this machine, with the small application behind it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from ssl import SSLContext

from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.listener import GrpcListener
from support.h2_application import Application


@contextlib.asynccontextmanager
async def served(
    limits: GrpcLimits | None = None, context: SSLContext | None = None
) -> AsyncIterator[tuple[GrpcListener, Application]]:
    """A listener that must drain in time in the end; ``context`` encrypts its connections."""
    application = Application()
    listener = GrpcListener(application.methods(), "127.0.0.1", 0, limits=limits, ssl=context)
    await listener.start()
    try:
        yield listener, application
    finally:
        assert await listener.drain(5)
        listener.abort()

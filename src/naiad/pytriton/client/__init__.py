"""Clients of one model each, over HTTP and gRPC."""

from naiad.pytriton.client.asyncio_client import AsyncioDecoupledModelClient, AsyncioModelClient
from naiad.pytriton.client.futures_client import FuturesModelClient
from naiad.pytriton.client.model_client import DecoupledModelClient, ModelClient

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]

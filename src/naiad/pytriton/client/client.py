"""The clients under the module's name in PyTriton."""

from naiad.pytriton.client.asyncio_client import AsyncioDecoupledModelClient, AsyncioModelClient
from naiad.pytriton.client.base import DEFAULT_INFERENCE_TIMEOUT_S, BaseModelClient
from naiad.pytriton.client.futures_client import FuturesModelClient
from naiad.pytriton.client.model_client import DecoupledModelClient, ModelClient

__all__ = [
    "DEFAULT_INFERENCE_TIMEOUT_S",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "BaseModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]

"""Waits on asynchronous clients: those of ``naiad.client`` and of tritonclient."""

from __future__ import annotations

from typing import Any

from naiad.client.sync import TIMEOUT_S
from naiad.pytriton.client.base import DEFAULT_INIT_TIMEOUT_S
from naiad.pytriton.client.tritonclient_view import async_questions_of
from naiad.pytriton.client.waiting import async_wait_for_model, async_wait_for_server
from naiad.pytriton.model_config.parser import ModelConfigParser
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = ["asyncio_get_model_config", "asyncio_wait_for_model_ready", "asyncio_wait_for_server_ready"]


async def asyncio_wait_for_server_ready(asyncio_client: Any, timeout_s: float | None = None) -> None:
    """Wait until the server is ready; arguments and errors as ``wait_for_server_ready``."""
    await async_wait_for_server(async_questions_of(asyncio_client), TIMEOUT_S if timeout_s is None else timeout_s)


async def asyncio_wait_for_model_ready(
    asyncio_client: Any, model_name: str, model_version: str | None = None, timeout_s: float | None = None
) -> None:
    """Wait until a model is ready; arguments and errors as ``wait_for_model_ready``."""
    await async_wait_for_model(
        async_questions_of(asyncio_client),
        model_name,
        model_version,
        DEFAULT_INIT_TIMEOUT_S if timeout_s is None else timeout_s,
    )


async def asyncio_get_model_config(
    client: Any, model_name: str, model_version: str | None = None, timeout_s: float | None = None
) -> TritonModelConfig:
    """The configuration of a model, once it is ready; arguments and errors as ``get_model_config``."""
    await asyncio_wait_for_model_ready(client, model_name, model_version, timeout_s)
    return ModelConfigParser.from_dict(await async_questions_of(client).config(model_name, model_version or ""))

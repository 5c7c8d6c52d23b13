"""Waits until a server or a model is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

from naiad.client.sync import Client
from naiad.errors import NaiadError
from naiad.pytriton.client.auth import create_auth_headers
from naiad.pytriton.client.exceptions import PyTritonClientTimeoutError
from naiad.pytriton.client.tritonclient_view import AsyncQuestions, Questions
from naiad.pytriton.client.url import TritonUrl

LATEST_MODEL_VERSION: Final = "<latest>"
_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


def wait_for_ready(url: TritonUrl, timeout_s: float, access_token: str | None) -> None:
    """Wait for a server; errors as ``wait_for_server``."""
    headers = create_auth_headers(access_token, url.scheme) if access_token else {}
    with Client(url.with_scheme, headers=headers, timeout_s=timeout_s) as client:
        wait_for_server(client, timeout_s)


def wait_for_server(client: Questions, timeout_s: float) -> None:
    """Wait until the server is ready.

    Raises:
        PyTritonClientTimeoutError: not in time.
    """
    _wait(lambda: client.ready() and client.live(), monotonic() + timeout_s, _SERVER)


def wait_for_model(client: Questions, model: str, version: str | None, timeout_s: float) -> None:
    """Wait until the server and a model are ready; errors as ``wait_for_server``."""
    deadline_s = monotonic() + timeout_s
    _wait(lambda: client.ready() and client.live(), deadline_s, _SERVER)
    _wait(lambda: client.model_ready(model, version or ""), deadline_s, _what(model, version))


async def async_wait_for_server(client: AsyncQuestions, timeout_s: float) -> None:
    """Wait until the server is ready; errors as ``wait_for_server``."""
    await _async_wait(lambda: _serves(client), monotonic() + timeout_s, _SERVER)


async def async_wait_for_model(client: AsyncQuestions, model: str, version: str | None, timeout_s: float) -> None:
    """Wait until the server and a model are ready; errors as ``wait_for_model``."""
    deadline_s = monotonic() + timeout_s
    await _async_wait(lambda: _serves(client), deadline_s, _SERVER)
    await _async_wait(lambda: client.model_ready(model, version or ""), deadline_s, _what(model, version))


async def _serves(client: AsyncQuestions) -> bool:
    return await client.ready() and await client.live()


_SERVER: Final = "server"


def _what(model: str, version: str | None) -> str:
    return f"model {model}/{version or LATEST_MODEL_VERSION}"


def _wait(is_ready: Callable[[], bool], deadline_s: float, what: str) -> None:
    pause_s = _PAUSE_S
    while not _holds(is_ready):
        left_s = deadline_s - monotonic()
        if left_s <= 0:
            raise _late(what)
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _holds(is_ready: Callable[[], bool]) -> bool:
    try:
        return is_ready()
    except NaiadError:
        return False


async def _async_wait(is_ready: Callable[[], Awaitable[bool]], deadline_s: float, what: str) -> None:
    pause_s = _PAUSE_S
    while True:
        try:
            async with asyncio.timeout(max(0.0, deadline_s - monotonic())):
                if await is_ready():
                    return
        except (NaiadError, TimeoutError):
            pass
        left_s = deadline_s - monotonic()
        if left_s <= 0:
            raise PyTritonClientTimeoutError(f"Timeout while waiting for {what} to be ready.")
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _late(what: str) -> PyTritonClientTimeoutError:
    return PyTritonClientTimeoutError(f"Waiting for {what} to be ready timed out.")

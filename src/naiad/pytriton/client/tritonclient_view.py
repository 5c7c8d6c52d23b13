"""Clients of tritonclient under the names that the waits here use, which are those of ``naiad.client``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from naiad.client.sync import Client


class Questions(Protocol):
    """The questions of waits to a server, as ``naiad.client.Client`` or a view of tritonclient's asks them."""

    def live(self) -> bool:
        """Whether the server runs."""

    def ready(self) -> bool:
        """Whether the server can serve requests."""

    def model_ready(self, model: str, version: str = "") -> bool:
        """Whether a model can serve requests."""

    def config(self, model: str, version: str = "") -> dict[str, Any]:
        """The configuration of a model."""

    def index(self) -> list[dict[str, str]]:
        """The models of the repositories, each with its state."""


class AsyncQuestions(Protocol):
    """The same questions in an event loop: ``naiad.client.AsyncClient``, or a view of tritonclient's."""

    async def live(self) -> bool:
        """Whether the server runs."""

    async def ready(self) -> bool:
        """Whether the server can serve requests."""

    async def model_ready(self, model: str, version: str = "") -> bool:
        """Whether a model can serve requests."""

    async def config(self, model: str, version: str = "") -> dict[str, Any]:
        """The configuration of a model."""


def questions_of(client: Any, headers: Mapping[str, str] | None = None) -> Questions:
    """A view of ``naiad.client.Client``, or of tritonclient's ``InferenceServerClient`` over HTTP or gRPC.

    Args:
        headers: of each question.
    """
    return (_View if hasattr(client, "is_server_ready") else _OwnView)(client, dict(headers or {}))


def async_questions_of(client: Any) -> AsyncQuestions:
    """The client itself, or a view of tritonclient's in the modules ``aio``."""
    found: AsyncQuestions = _AsyncView(client) if hasattr(client, "is_server_ready") else client
    return found


class _OwnView:
    def __init__(self, client: Client, headers: dict[str, str]) -> None:
        self._client = client
        self._headers = headers

    def live(self) -> bool:
        return self._client.live(headers=self._headers)

    def ready(self) -> bool:
        return self._client.ready(headers=self._headers)

    def model_ready(self, model: str, version: str = "") -> bool:
        return self._client.model_ready(model, version, headers=self._headers)

    def config(self, model: str, version: str = "") -> dict[str, Any]:
        return self._client.config(model, version, headers=self._headers)

    def index(self) -> list[dict[str, str]]:
        return self._client.index(headers=self._headers)


class _View:
    def __init__(self, client: Any, headers: dict[str, str]) -> None:
        self._client = client
        self._headers = headers

    def live(self) -> bool:
        return _agrees(lambda: self._client.is_server_live(headers=self._headers))

    def ready(self) -> bool:
        return _agrees(lambda: self._client.is_server_ready(headers=self._headers))

    def model_ready(self, model: str, version: str = "") -> bool:
        return _agrees(lambda: self._client.is_model_ready(model, version, headers=self._headers))

    def config(self, model: str, version: str = "") -> dict[str, Any]:
        return _config(self._client.get_model_config(model, version, headers=self._headers))

    def index(self) -> list[dict[str, str]]:
        found = self._client.get_model_repository_index(headers=self._headers)
        if isinstance(found, list):
            return found
        return [{"name": row.name, "version": row.version, "state": row.state} for row in found.models]


class _AsyncView:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def live(self) -> bool:
        return await _agrees_later(self._client.is_server_live)

    async def ready(self) -> bool:
        return await _agrees_later(self._client.is_server_ready)

    async def model_ready(self, model: str, version: str = "") -> bool:
        return await _agrees_later(lambda: self._client.is_model_ready(model, version))

    async def config(self, model: str, version: str = "") -> dict[str, Any]:
        return _config(await self._client.get_model_config(model, version))


def _config(found: Any) -> dict[str, Any]:
    """Over HTTP an object as it is, over gRPC a message."""
    if isinstance(found, dict):
        return found
    from google.protobuf.json_format import MessageToDict

    return dict(MessageToDict(found.config, preserving_proto_field_name=True))


def _agrees(question: Callable[[], Any]) -> bool:
    try:
        return bool(question())
    # A server that is not there is an error of sockets, of gevent or of grpcio.
    except Exception:
        return False


async def _agrees_later(question: Callable[[], Awaitable[Any]]) -> bool:
    try:
        return bool(await question())
    except Exception:
        return False

"""The official client in its four flavours, called in one way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

from interop.calls import CALL_S
from naiad.testing import RunningServer

FLAVOURS = ("http", "http.aio", "grpc", "grpc.aio")
_MODULES: dict[str, Any] = {
    "http": tritonclient.http,
    "http.aio": tritonclient.http.aio,
    "grpc": tritonclient.grpc,
    "grpc.aio": tritonclient.grpc.aio,
}


class Flavour:
    """One client. Every method of the library is called by ``call``, whether it is a coroutine or not.

    Attributes:
        library: where its inputs and outputs come from.
    """

    def __init__(self, kind: str, client: Any, runner: asyncio.Runner) -> None:
        self.kind = kind
        self.library: Any = tritonclient.http if kind.startswith("http") else tritonclient.grpc
        self.client = client
        self._runner = runner

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method and give back what it gives."""
        found = getattr(self.client, method)(*arguments, **named)
        return self.wait(found) if asyncio.iscoroutine(found) else found

    def wait(self, found: Awaitable[Any]) -> Any:
        """The outcome of a coroutine."""

        async def bounded() -> Any:
            return await asyncio.wait_for(found, CALL_S)

        return self._runner.run(bounded())

    def json(self, method: str, *arguments: Any) -> Any:
        """Call a method that describes something, and give back plain values."""
        more = {"as_json": True} if self.kind.startswith("grpc") else {}
        return self.call(method, *arguments, **more)

    def input(self, name: str, values: np.ndarray, datatype: str) -> Any:
        """An input with its data."""
        given = self.library.InferInput(name, list(values.shape), datatype)
        given.set_data_from_numpy(values)
        return given

    def output(self, name: str, **more: Any) -> Any:
        """A wanted output."""
        return self.library.InferRequestedOutput(name, **more)


@contextmanager
def flavour_of(server: RunningServer, kind: str, **options: Any) -> Iterator[Flavour]:
    """A client of ``server`` with a connection of its own; ``options`` are those of the library's client."""
    url = server.url if kind.startswith("http") else server.grpc_url
    with asyncio.Runner() as runner:

        async def make() -> Any:
            return _MODULES[kind].InferenceServerClient(url, **options)

        made = Flavour(kind, runner.run(make()), runner)
        try:
            yield made
        finally:
            made.call("close")

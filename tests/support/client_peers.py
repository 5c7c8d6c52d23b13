"""What tests of clients need beside real servers: a server that plays a script, and a coroutine client that waits."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from naiad.client import AsyncClient


class Waiting:
    """An ``AsyncClient`` whose methods wait, so that both clients have the same tests."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncClient(*arguments, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._loop.run_until_complete(method(*arguments, **options))

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@contextmanager
def playing(script: Sequence[bytes | threading.Event | None]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that responds to each request with the next part of the script; None closes the connection.

    An event is waited for, without a response. Gives its address and the requests that it got.
    """
    requests: list[bytes] = []
    left = list(script)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while left:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while left and (request := connection.recv(1 << 16)):
                    requests.append(request)
                    part = left.pop(0)
                    if isinstance(part, threading.Event):
                        part.wait(30)
                    if not isinstance(part, bytes):
                        break
                    connection.sendall(part)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        left.clear()
        thread.join()

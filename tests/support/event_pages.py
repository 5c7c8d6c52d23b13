"""A page of the dashboard as the server sees it: a request whose response is a stream of events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from naiad.testing import RunningServer
from naiad.testing.http import request_bytes

WAIT_S = 20.0
Event = tuple[str, Any]


class EventPage:
    """An open stream of events."""

    def __init__(self, server: RunningServer, headers: Sequence[tuple[str, str]] = ()) -> None:
        self.socket = server.connect()
        self.socket.sendall(request_bytes("GET", "/dashboard/events", None, headers))
        self.received_bytes = 0
        self.seen: set[str] = set()
        self._buffer = b""
        self.head = self._until(b"\r\n\r\n").decode("latin1")
        self._events = self._read()

    def __enter__(self) -> EventPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    def next(self, name: str, accepts: Callable[[Any], bool] = lambda data: True) -> Any:
        """The data of the next event of this name that is accepted."""
        deadline = time.monotonic() + WAIT_S
        for found, data in self._events:
            self.seen.add(found)
            if found == name and accepts(data):
                return data
            assert time.monotonic() < deadline, f"no accepted event {name!r} within {WAIT_S} s; the last was {found}"
        raise AssertionError(f"the stream ended before an event {name!r}")

    def rest(self) -> list[Event]:
        """All events until the server ends the stream."""
        return list(self._events)

    def _read(self) -> Iterator[Event]:
        while size := int(self._until(b"\r\n"), 16):
            chunk = self._take(size + 2)[:-2].decode()
            for event in chunk.strip().split("\n\n"):
                name, _, data = event.partition("\n")
                yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._receive()
        found, _, self._buffer = self._buffer.partition(end)
        return found

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive()
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _receive(self) -> None:
        self.socket.settimeout(WAIT_S)
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the server closed the connection")
        self.received_bytes += len(data)
        self._buffer += data

"""Callers of ``ModelStreamInfer`` on raw sockets, in one thread: each sends the next request when it has had all the
responses to the last one. They count gRPC messages and read nothing in them, so that the server is what is measured.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Sequence

from hpack import Encoder

from .figures import CaseError
from .grpc_callers import (
    ACK,
    END_HEADERS,
    FRAME_HEAD,
    INITIAL_WINDOW,
    LARGEST_WINDOW,
    PREFACE,
    SETTING,
    Kind,
    frame,
)
from .grpc_request import PREFIX_BYTES, STREAM_INFER, framed

_STREAM = 1
_WINDOW_SETTING = 4
_RECEIVE_BYTES = 1 << 18
_SILENCE_S = 30.0


class _StreamCaller:
    """One connection with one call."""

    def __init__(self, port: int, message: bytes, responses: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answered = 0
        self._message = framed(message)
        self._wanted = responses
        self._left = 0
        self._rest = b""
        self._body = b""
        self._connection_window = self._stream_window = INITIAL_WINDOW
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", STREAM_INFER),
            (":authority", "127.0.0.1"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        grant = struct.pack(">I", LARGEST_WINDOW - INITIAL_WINDOW)
        self.socket.sendall(
            PREFACE
            + frame(Kind.SETTINGS, 0, 0, SETTING.pack(_WINDOW_SETTING, LARGEST_WINDOW))
            + frame(Kind.WINDOW_UPDATE, 0, 0, grant)
            + frame(Kind.HEADERS, END_HEADERS, _STREAM, Encoder().encode(headers))
        )

    def ask(self) -> None:
        """Send the request, as soon as the server has room for it."""
        size = len(self._message)
        if min(self._connection_window, self._stream_window) >= size:
            self._connection_window -= size
            self._stream_window -= size
            self._left = self._wanted
            self.socket.sendall(frame(Kind.DATA, 0, _STREAM, self._message))

    def receive(self) -> None:
        """Take what has arrived; the next request goes out when the last one has all its responses."""
        received = self.socket.recv(_RECEIVE_BYTES)
        if not received:
            raise CaseError("the server closed a stream")
        data = self._rest + received
        at = 0
        while len(data) - at >= FRAME_HEAD.size:
            length_and_kind, flags, stream = FRAME_HEAD.unpack_from(data, at)
            end = at + FRAME_HEAD.size + (length_and_kind >> 8)
            if end > len(data):
                break
            self._take(Kind(length_and_kind & 0xFF), flags, stream, data[at + FRAME_HEAD.size : end])
            at = end
        self._rest = data[at:]
        if not self._left:
            self.ask()

    def _take(self, kind: Kind, flags: int, stream: int, payload: bytes) -> None:
        if kind is Kind.DATA:
            self._count(payload)
        elif kind is Kind.WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if stream:
                self._stream_window += more
            else:
                self._connection_window += more
        elif kind in (Kind.SETTINGS, Kind.PING) and not flags & ACK:
            if kind is Kind.SETTINGS:
                given = dict(SETTING.iter_unpack(payload))
                self._stream_window += given.get(_WINDOW_SETTING, INITIAL_WINDOW) - INITIAL_WINDOW
            self.socket.sendall(frame(kind, ACK, 0, payload if kind is Kind.PING else b""))
        elif kind in (Kind.RST_STREAM, Kind.GOAWAY):
            raise CaseError(f"the server ended a stream: {kind.name}")

    def _count(self, payload: bytes) -> None:
        body = self._body + payload if self._body else payload
        at = 0
        while len(body) - at >= PREFIX_BYTES:
            end = at + PREFIX_BYTES + int.from_bytes(body[at + 1 : at + PREFIX_BYTES], "big")
            if end > len(body):
                break
            at = end
            self.answered += 1
            self._left -= 1
        self._body = body[at:]


def count_responses(port: int, message: bytes, responses: int, callers: int, seconds: float) -> float:
    """Responses per second of ``callers`` streams that repeat ``message``, each of which gets so many ``responses``.

    Raises:
        CaseError: a stream ended, or nothing came for a while.
    """
    crew = [_StreamCaller(port, message, responses) for _ in range(callers)]
    try:
        return _run(crew, seconds)
    finally:
        for caller in crew:
            caller.socket.close()


def _run(crew: Sequence[_StreamCaller], seconds: float) -> float:
    with selectors.DefaultSelector() as ready:
        for caller in crew:
            ready.register(caller.socket, selectors.EVENT_READ, caller)
            caller.ask()
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            events = ready.select(_SILENCE_S)
            if not events:
                raise CaseError(f"no response for {_SILENCE_S:g} s")
            for key, _ in events:
                key.data.receive()
        return sum(caller.answered for caller in crew) / (now - began)

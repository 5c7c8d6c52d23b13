"""Whole requests of HTTP/1.1 that somebody else has written, and what they say of the responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from naiad.perf.target.address import reach, split_url
from naiad.perf.target.http_channel import HttpChannel
from naiad.perf.target.http_response import HttpResponseReader
from naiad.perf.target.protocol import ClientChannel, Poller, Problem, ResponseListener

_PORT = 8000


@dataclass(frozen=True, slots=True)
class PreparedResponse:
    """A whole response: its status, its head up to the empty line, its body."""

    status: int
    head: bytes
    body: bytes


class PreparedRequest:
    """A request with its head, which may be sent any number of times.

    Args:
        wire: its bytes.
        judge: says what is wrong with a response; None for a right one.
        closes: whether the connection is closed behind the response.
    """

    __slots__ = ("closes", "index", "judge", "keeps_body", "size", "wire")

    def __init__(
        self, wire: bytes, judge: Callable[[PreparedResponse], Problem | None], *, closes: bool = False
    ) -> None:
        self.wire = wire
        self.judge = judge
        self.closes = closes
        self.size = len(wire)
        self.index = 0
        self.keeps_body = True


class PreparedHttp:
    """A server that takes such requests.

    Raises:
        TargetError: it is not reached.
    """

    def __init__(self, url: str) -> None:
        _, host, port, _ = split_url(url, _PORT)
        self._address = reach(host, port)

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """A new channel with one place."""
        channel = HttpChannel(self._address, poller, listener, judge_prepared)
        channel.connect()
        return channel


def judge_prepared(request: PreparedRequest, reader: HttpResponseReader) -> Problem | None:
    """What the request says of its response."""
    reader.closes = reader.closes or request.closes
    return request.judge(PreparedResponse(reader.status, reader.head, bytes(reader.body or b"")))

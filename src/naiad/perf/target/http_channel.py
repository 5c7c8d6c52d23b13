"""A connection of HTTP/1.1 with one request in flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from naiad.perf.target.address import Address, cause_of
from naiad.perf.target.http_response import BadResponseError, HttpResponseReader
from naiad.perf.target.protocol import Place, Poller, Problem, ResponseListener
from naiad.perf.target.socket_channel import RECEIVE_BYTES, SocketChannel
from naiad.wire.http1.head import HttpError

Judge = Callable[[Any, HttpResponseReader], Problem | None]
"""Says what is wrong with the whole response to a request."""
_MAX_KNOWN_BYTES: Final = RECEIVE_BYTES // 2

clock = time.monotonic_ns


class HttpChannel(SocketChannel, Place):
    """A connection that is the place of its one request.

    Responses repeat themselves: the head of a success says how long it is, so one that begins with the same head and
    has that length is whole and a success, and nothing else is looked at.
    """

    def __init__(self, address: Address, poller: Poller, listener: ResponseListener, judge: Judge) -> None:
        SocketChannel.__init__(self, address, poller, listener)
        Place.__init__(self)
        self.places = (self,)
        self._judge = judge
        self._reader = HttpResponseReader()
        self._known_head = b"\0"
        self._known_length = -1
        self._sending_since = 0
        self._receiving_since = 0

    def start(self, request: Any, began_ns: int, now_ns: int) -> None:
        """Send a request."""
        self.request = request
        self.began_ns = began_ns
        if self._socket is None:
            # The server had closed it between two requests.
            self.connect()
        wire = request.wire
        try:
            if self._write(wire):
                self._times.send_ns += clock() - now_ns
            else:
                self._sending_since = now_ns
        except OSError as error:
            self._lost(cause_of(error))

    def _all_sent(self) -> None:
        if self._sending_since:
            self._times.send_ns += clock() - self._sending_since
            self._sending_since = 0

    def receive(self) -> None:
        """Take what has arrived."""
        before = clock()
        try:
            data = self._read()
        except OSError as error:
            self._lost(cause_of(error))
            return
        now = clock()
        if data and len(data) == self._known_length and data.startswith(self._known_head) and self._reader.is_idle:
            request = self.request
            if request is not None and not request.keeps_body:
                self._times.receive_ns += now - before
                self.request = None
                self._listener.completed(self, now, None)
                return
        if data is not None:
            self._take(data, before, now)

    def _take(self, data: bytes, before: int, now: int) -> None:
        request, reader = self.request, self._reader
        if not data:
            if request is not None and reader.end():
                self._end(request, now)
            elif request is None:
                self._drop()
            else:
                self._lost("the server closed the connection")
            return
        if request is None:
            self._drop()
            self._reader = HttpResponseReader()
            return
        if reader.is_idle:
            self._receiving_since = before
        try:
            if not reader.feed(data, keeps_body=request.keeps_body):
                self.arrived(reader, now)
                return
        except (BadResponseError, HttpError) as error:
            self.request = None
            self.connect()
            self._listener.completed(self, now, ("bad response", str(error)))
            return
        self._end(request, now)

    def arrived(self, reader: HttpResponseReader, now_ns: int) -> None:
        """More of a response has arrived, and maybe all of it."""

    def _end(self, request: Any, now: int) -> None:
        reader = self._reader
        self.arrived(reader, now)
        self._times.receive_ns += now - self._receiving_since
        self._losses = 0
        problem = self._judge(request, reader)
        if reader.status == 200 and not reader.closes and 0 < reader.length <= _MAX_KNOWN_BYTES:
            self._known_head, self._known_length = reader.head, reader.length
        self.request = None
        if reader.closes:
            self._drop()
        self._listener.completed(self, now, problem)

    def _greet(self) -> None:
        if self._unsent:
            self._send_unsent()

    def _take_in_flight(self) -> list[tuple[Place, int]]:
        self._reader = HttpResponseReader()
        self._sending_since = 0
        if self.request is None:
            return []
        self.request = None
        return [(self, clock())]

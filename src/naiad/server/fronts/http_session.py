"""The engine's side of HTTP for one front-end process: requests that came as they were, answered by the whole API."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from naiad.frontends.http.server.exchange import Exchange, give_up
from naiad.frontends.http.server.replies import handler_failed
from naiad.frontends.http.server.streaming_response import StreamingResponse
from naiad.server.fronts.messages import HTTP, HTTP_CANCEL, HTTP_END, HTTP_PART, HTTP_TAKEN, HTTP_WHOLE
from naiad.wire.http1.head import HeadMemo, HttpError, RequestHead, adapt_response

if TYPE_CHECKING:
    from naiad.frontends.http.server.exchange import Application
    from naiad.server.fronts.link import Handlers, Link, Place
    from naiad.wire.http1.head import Part


class RelayedConnection:
    """The ``ResponseChannel`` of one exchange, whose connection the front-end process has."""

    def __init__(self, session: HttpSession, mark: int, peer_host: str) -> None:
        self.pending: deque[Exchange] = deque()
        self.halted = 0
        self.lost = False
        self.quiet = 0
        self.untaken = 0
        self.write: Callable[[Part], None] = lambda part: self.write_parts([part])
        self._session = session
        self._mark = mark
        self._peer_host = peer_host

    def peer_host(self) -> str:
        """The address of the peer of the front end."""
        return self._peer_host

    def write_parts(self, parts: list[Part]) -> None:
        """Write a response."""
        self._session.send_whole(self._mark, parts)

    def write_due(self, parts: list[Part]) -> None:
        """Write more of a streaming response."""
        data = b"".join(parts)
        if data:
            self.untaken += len(data)
            self._session.send_part(self._mark, data)

    def respond_slowly(self, exchange: Exchange, parts: Sequence[Part]) -> None:
        """Write a response. The front end fits it to its connection."""
        exchange.owner = None
        self.pending.clear()
        if exchange.head.extra_fields:
            parts = adapt_response(parts, "", False, exchange.head.extra_fields)
        self._session.send_whole(self._mark, list(parts))

    def write_pending(self) -> None:
        """Write what a streaming response has."""
        if not self.pending:
            return
        response = self.pending[0].response
        if type(response) is StreamingResponse and response.write_on() and self.pending:
            # Cut by hand: the streaming response refers to its exchange.
            self.pending.popleft().response = None
            self._session.end(self._mark)

    def unsent_bytes(self) -> int:
        """Bytes that the front end has not passed on to the peer."""
        return self.untaken

    def drain(self) -> None:
        """The front end decides when its connection closes."""

    def abort(self) -> None:
        """The front end decides when its connection closes."""

    def taken(self, size: int) -> None:
        """The peer has taken ``size`` bytes."""
        self.untaken -= size
        if self.pending and type(response := self.pending[0].response) is StreamingResponse:
            response.look()


class HttpSession:
    """Handles the exchanges of one front-end process with the whole application."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._heads = HeadMemo(complete=self._complete)
        self._open: dict[int, RelayedConnection] = {}

    def connect(self, link: Link) -> None:
        """Respond over ``link``. Called before the first request."""
        self._link = link

    def handlers(self) -> Handlers:
        """What takes the front end's messages about HTTP."""
        return {HTTP: self._take, HTTP_CANCEL: self._cancel, HTTP_TAKEN: self._taken}

    def serve(self, application: Application) -> None:
        """Hand requests to ``application`` from the next one on."""
        self._application = application
        self.forget_heads()

    def forget_heads(self) -> None:
        """Ask the application anew for every further request."""
        self._heads.clear()

    def close(self) -> None:
        """The front end is gone, and with it everybody who waits for a response."""
        for mark in list(self._open):
            self._cancel(mark, True)
        self._open.clear()

    def _complete(self, head: RequestHead) -> None:
        head.handler = self._application(head)
        # The front end frames the body and keeps the connection, so that here a response ends with its last byte.
        head.version = (1, 0)
        head.plain = False

    def _take(self, mark: int, peer_host: str, raw_head: bytes, place: Place) -> None:
        connection = self._open[mark] = RelayedConnection(self, mark, peer_host)
        try:
            head = self._heads.get(raw_head)
        except HttpError as error:
            head = RequestHead("", "", "", (1, 0), {})
            Exchange(connection, head).send_error(error.status, error.message)
            return
        exchange = Exchange(connection, head)
        connection.pending.append(exchange)
        body = self._link.open(place)
        try:
            head.handler(exchange, body)
        except Exception:
            handler_failed(exchange)

    def _cancel(self, mark: int, is_gone: bool) -> None:
        connection = self._open.get(mark)
        if connection is None:
            return
        if is_gone:
            connection.lost = True
        give_up(connection.pending)

    def _taken(self, mark: int, size: int) -> None:
        if (connection := self._open.get(mark)) is not None:
            connection.taken(size)

    # Responses

    def send_whole(self, mark: int, parts: list[Part]) -> None:
        """Send a whole response, whose head lies in the first part."""
        self._open.pop(mark, None)
        first = bytes(parts[0])
        rest = None if len(parts) == 1 else self._link.place_parts(parts[1:], sum(map(len, parts[1:])))
        self._link.post((HTTP_WHOLE, mark, first, rest))

    def send_part(self, mark: int, data: bytes) -> None:
        """Send a part of a streaming response."""
        self._link.post((HTTP_PART, mark, self._link.place(data)))

    def end(self, mark: int) -> None:
        """End a streaming response."""
        self._open.pop(mark, None)
        self._link.post((HTTP_END, mark))

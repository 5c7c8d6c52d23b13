"""The front-end process's side of HTTP: requests that go to the engine as they are, and their responses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from naiad.errors import QueueFullError, UnavailableError
from naiad.frontends.http.server.exchange import Body, Exchange
from naiad.frontends.http.server.replies import send_error
from naiad.frontends.http.server.streaming_response import StreamingResponse
from naiad.server.fronts.messages import HTTP, HTTP_CANCEL, HTTP_END, HTTP_PART, HTTP_TAKEN, HTTP_WHOLE
from naiad.server.fronts.remote_engine import ENGINE_LOST
from naiad.wire.http1.head import HEAD_END

if TYPE_CHECKING:
    from naiad.server.fronts.large_bodies import LargeBodies
    from naiad.server.fronts.link import Handlers, Link, Place

# The front end writes these itself.
_OWN_FIELDS: Final = frozenset(("connection", "content-type", "transfer-encoding"))


class RelayedExchange:
    """An exchange whose request is with the engine. It is the owner of the exchange.

    Attributes:
        held_bytes: what it counts for in ``LargeBodies``; 0 for a small body.
        response: the streaming response, once it has begun.
        untaken: bytes of it that the engine is yet to hear of.
    """

    __slots__ = ("_relay", "exchange", "held_bytes", "response", "untaken")

    def __init__(self, relay: HttpRelay, exchange: Exchange, held_bytes: int) -> None:
        self._relay = relay
        self.exchange = exchange
        self.held_bytes = held_bytes
        self.response: StreamingResponse | None = None
        self.untaken = 0

    def cancel(self) -> None:
        """The caller is gone, or has ended only its own direction."""
        self._relay.cancel(self)


class HttpRelay:
    """Hands exchanges over to the engine's process.

    Args:
        large: bounds the large bodies.

    Attributes:
        handed_over: how many went there.
    """

    def __init__(self, large: LargeBodies) -> None:
        self._large = large
        self.handed_over = 0
        self._link: Link | None = None
        self._open: dict[int, RelayedExchange] = {}

    def handlers(self) -> Handlers:
        """What takes the engine's messages about HTTP."""
        return {HTTP_WHOLE: self._take_whole, HTTP_PART: self._take_part, HTTP_END: self._take_end}

    def connect(self, link: Link) -> None:
        """Hand over to ``link`` from now on."""
        self._link = link

    def disconnect(self) -> None:
        """The engine's process is gone: open exchanges fail, and further ones until ``connect``."""
        self._link = None
        failed, self._open = self._open, {}
        for relayed in failed.values():
            self._large.release(relayed)
            if relayed.response is None:
                send_error(relayed.exchange, UnavailableError(ENGINE_LOST))
            else:
                # Half a response cannot be taken back, and its end would make it look whole.
                relayed.exchange.connection.abort()

    def __call__(self, exchange: Exchange, body: Body) -> None:
        """Hand an exchange over: the ``Handler`` of everything that this process does not answer itself."""
        link = self._link
        if link is None:
            send_error(exchange, UnavailableError(ENGINE_LOST))
            return
        try:
            held_bytes = self._large.take(len(body))
        except QueueFullError as error:
            send_error(exchange, error)
            return
        relayed = RelayedExchange(self, exchange, held_bytes)
        self._open[id(exchange)] = relayed
        exchange.owner = relayed
        self.handed_over += 1
        link.post((HTTP, id(exchange), exchange.connection.peer_host(), exchange.head.raw, link.place(body)))

    def cancel(self, relayed: RelayedExchange) -> None:
        """Notify the engine that the caller left."""
        is_gone = relayed.exchange.closed()
        if is_gone:
            # It stays open until the engine responds: its number must not be used again before.
            self._large.release(relayed)
        if self._link is not None:
            self._link.post((HTTP_CANCEL, id(relayed.exchange), is_gone))

    def _pop(self, mark: int) -> RelayedExchange | None:
        relayed = self._open.pop(mark, None)
        if relayed is not None:
            self._large.release(relayed)
        return relayed

    def _take_whole(self, mark: int, first: bytes, rest: Place | None) -> None:
        relayed = self._pop(mark)
        link = self._link
        if relayed is not None and link is not None:
            relayed.exchange.send(first if rest is None else [first, link.open(rest)])

    def _take_part(self, mark: int, place: Place) -> None:
        relayed, link = self._open.get(mark), self._link
        if relayed is None or link is None:
            return
        data = bytes(link.open(place))
        relayed.untaken += len(data)
        if relayed.response is None:
            relayed.response, data = _begun(relayed.exchange, data)
        response = relayed.response
        if data:
            response.send(data)
        if response.is_behind and not relayed.exchange.closed():
            # It keeps one callback, which tells of all parts since.
            response.when_taken(partial(self._taken, mark))
        else:
            self._taken(mark)

    def _taken(self, mark: int) -> None:
        relayed, link = self._open.get(mark), self._link
        if relayed is not None and link is not None and relayed.untaken:
            size, relayed.untaken = relayed.untaken, 0
            link.post((HTTP_TAKEN, mark, size))

    def _take_end(self, mark: int) -> None:
        relayed = self._pop(mark)
        if relayed is not None and relayed.response is not None:
            relayed.response.end()


def _begun(exchange: Exchange, data: bytes) -> tuple[StreamingResponse, bytes]:
    """The streaming response that begins with ``data``, and what of its body ``data`` holds."""
    head, _, body = data.partition(HEAD_END)
    status_line, *lines = head.decode("latin-1").split("\r\n")
    fields = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    content_type = next((value for name, value in fields if name.lower() == "content-type"), "")
    extra = [(name, value) for name, value in fields if name.lower() not in _OWN_FIELDS]
    return StreamingResponse(exchange, int(status_line.split(" ")[1]), content_type, extra), body

"""The front-end process's side of gRPC: calls that go to the engine as they are, and their responses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from naiad.errors import UnavailableError
from naiad.frontends.grpc.rpc.call import Body, Method, RpcCall, Streaming, Unary, fail
from naiad.server.fronts.messages import (
    CALL,
    CALL_CANCEL,
    CALL_END,
    CALL_FINISH,
    CALL_MESSAGE,
    CALL_OPEN,
    CALL_PAUSE,
    CALL_REPLY,
    CALL_RESUME,
    CALL_SEND,
    CALL_STOP,
    CALL_TAKEN,
)
from naiad.server.fronts.remote_engine import ENGINE_LOST

if TYPE_CHECKING:
    from naiad.server.fronts.link import Handlers, Link, Message, Place
    from naiad.wire.grpc.responses import Fields


class RelayedStream:
    """A call that is with the engine: the ``Receiver`` of its messages, and its owner."""

    __slots__ = ("_mark", "_relay", "call", "untaken")

    def __init__(self, relay: GrpcRelay, call: RpcCall) -> None:
        self._relay = relay
        self._mark = id(call)
        self.call = call
        self.untaken = 0

    def receive(self, message: Body) -> None:
        """The next message of the caller."""
        self._relay.send(CALL_MESSAGE, self._mark, message)

    def end(self) -> None:
        """The caller sends no more."""
        self._relay.post((CALL_END, self._mark))

    def stop(self) -> None:
        """The server stops."""
        self._relay.post((CALL_STOP, self._mark))

    def cancel(self) -> None:
        """The caller gave up."""
        self._relay.forget(self._mark)
        self._relay.post((CALL_CANCEL, self._mark))


class GrpcRelay:
    """Hands calls over to the engine's process.

    Args:
        check_room: refuses large messages before they are received.

    Attributes:
        handed_over: how many calls went to the engine.
    """

    def __init__(self, check_room: Callable[[int], None]) -> None:
        self._check_room = check_room
        self.handed_over = 0
        self._link: Link | None = None
        self._open: dict[int, RelayedStream] = {}

    def handlers(self) -> Handlers:
        """What takes the engine's messages about gRPC."""
        return {
            CALL_REPLY: self._take_reply,
            CALL_SEND: self._take_message,
            CALL_FINISH: self._take_finish,
            CALL_PAUSE: self._take_pause,
            CALL_RESUME: self._take_resume,
        }

    def connect(self, link: Link) -> None:
        """Hand over to ``link`` from now on."""
        self._link = link

    def disconnect(self) -> None:
        """The engine's process is gone: open calls fail, and further ones until ``connect``."""
        self._link = None
        failed, self._open = self._open, {}
        for relayed in failed.values():
            fail(relayed.call, UnavailableError(ENGINE_LOST))

    def method(self, path: str, is_stream: bool, compressed: bool) -> Method:
        """A method whose calls go to the engine."""
        if is_stream:
            return Streaming(partial(self._open_stream, path), compressed)
        return Unary(partial(self.call, path), compressed, self._check_room)

    def call(self, path: str, call: RpcCall, message: Body) -> None:
        """Hand a call with one message over."""
        link = self._link
        if link is None:
            fail(call, UnavailableError(ENGINE_LOST))
            return
        call.owner = self._open[id(call)] = RelayedStream(self, call)
        self.handed_over += 1
        link.post((CALL, id(call), path, dict(call.metadata), link.place(message)))

    def _open_stream(self, path: str, call: RpcCall) -> RelayedStream:
        stream = RelayedStream(self, call)
        if self._link is None:
            fail(call, UnavailableError(ENGINE_LOST))
        else:
            self._open[id(call)] = stream
            call.on_drained = partial(self._taken, id(call))
            self.handed_over += 1
            self._link.post((CALL_OPEN, id(call), path, dict(call.metadata)))
        return stream

    def post(self, message: Message) -> None:
        """Send a message to the engine."""
        if self._link is not None:
            self._link.post(message)

    def send(self, kind: int, mark: int, message: Body) -> None:
        """Send a message of a caller to the engine."""
        if self._link is not None:
            self._link.post((kind, mark, self._link.place(message)))

    def forget(self, mark: int) -> None:
        """A call has ended."""
        self._open.pop(mark, None)

    # Messages of the engine

    def _take_reply(self, mark: int, place: Place) -> None:
        relayed, link = self._open.pop(mark, None), self._link
        if relayed is not None and link is not None:
            data = link.open(place)
            relayed.call.reply((data,), len(data))

    def _take_message(self, mark: int, place: Place) -> None:
        relayed, link = self._open.get(mark), self._link
        if relayed is None or link is None:
            return
        data = link.open(place)
        # Counted first: the call may notify of the taking at once.
        relayed.untaken += len(data)
        relayed.call.send((data,), len(data))

    def _taken(self, mark: int) -> None:
        relayed = self._open.get(mark)
        if relayed is not None and relayed.untaken:
            size, relayed.untaken = relayed.untaken, 0
            self.post((CALL_TAKEN, mark, size))

    def _take_finish(self, mark: int, code: int, text: str, fields: Fields) -> None:
        if (relayed := self._open.pop(mark, None)) is not None:
            relayed.call.finish(code, text, fields)

    def _take_pause(self, mark: int) -> None:
        self._with(mark, lambda call: call.pause())

    def _take_resume(self, mark: int) -> None:
        self._with(mark, lambda call: call.resume())

    def _with(self, mark: int, work: Callable[[RpcCall], Any]) -> None:
        if (relayed := self._open.get(mark)) is not None:
            work(relayed.call)

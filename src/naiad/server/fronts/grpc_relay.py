"""The front-end process's side of gRPC: calls that go to the engine as they are, and their responses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from naiad.errors import QueueFullError, UnavailableError
from naiad.frontends.grpc.rpc.call import Body, Method, RpcCall, Streaming, Unary, fail
from naiad.server.fronts.messages import (
    CALL,
    CALL_CANCEL,
    CALL_END,
    CALL_FINISH,
    CALL_MESSAGE,
    CALL_OPEN,
    CALL_PAUSE,
    CALL_READ,
    CALL_REPLY,
    CALL_RESUME,
    CALL_SEND,
    CALL_STOP,
    CALL_TAKEN,
    MESSAGE_BYTES,
    WINDOW_BYTES,
)
from naiad.server.fronts.remote_engine import ENGINE_LOST

if TYPE_CHECKING:
    from naiad.server.fronts.large_bodies import LargeBodies
    from naiad.server.fronts.link import Handlers, Link, Message, Place
    from naiad.wire.grpc.responses import Fields


class RelayedStream:
    """A call that is with the engine: the ``Receiver`` of its messages, and its owner.

    Attributes:
        call: the call.
        mark: its number.
        held_bytes: what it counts for in ``LargeBodies``; 0 for streams and small messages.
        untaken: bytes of responses that the engine is yet to hear of.
    """

    __slots__ = ("_is_paused", "_relay", "_unread", "call", "held_bytes", "mark", "untaken")

    def __init__(self, relay: GrpcRelay, mark: int, call: RpcCall, held_bytes: int = 0) -> None:
        self._relay = relay
        self.mark = mark
        self.call = call
        self.held_bytes = held_bytes
        self.untaken = 0
        self._unread = 0
        self._is_paused = False

    def receive(self, message: Body) -> None:
        """The next message of the caller."""
        self._relay.send(CALL_MESSAGE, self.mark, message)
        # Large messages lie in shared memory, so the socket to an engine that is busy takes any number of them.
        self._unread += len(message) + MESSAGE_BYTES
        if self._is_full and not self._is_paused:
            self.call.pause()

    @property
    def _is_full(self) -> bool:
        return self._unread > WINDOW_BYTES

    def read(self, size: int) -> None:
        """The engine has read messages of ``size`` bytes."""
        was_full = self._is_full
        self._unread -= size
        if was_full and not self._is_full and not self._is_paused:
            self.call.resume()

    def pause(self) -> None:
        """The engine wants no further message for now."""
        self._is_paused = True
        self.call.pause()

    def resume(self) -> None:
        """The engine takes messages again."""
        self._is_paused = False
        if not self._is_full:
            self.call.resume()

    def end(self) -> None:
        """The caller sends no more."""
        self._relay.post((CALL_END, self.mark))

    def stop(self) -> None:
        """The server stops."""
        self._relay.post((CALL_STOP, self.mark))

    def cancel(self) -> None:
        """The caller gave up."""
        self._relay.forget(self.mark)
        self._relay.post((CALL_CANCEL, self.mark))


class GrpcRelay:
    """Hands calls over to the engine's process.

    Args:
        large: bounds the large messages.

    Attributes:
        handed_over: how many calls went to the engine.
    """

    def __init__(self, large: LargeBodies) -> None:
        self._large = large
        self.handed_over = 0
        self._link: Link | None = None
        self._open: dict[int, RelayedStream] = {}
        self._last_mark = 0

    def handlers(self) -> Handlers:
        """What takes the engine's messages about gRPC."""
        return {
            CALL_REPLY: self._take_reply,
            CALL_SEND: self._take_message,
            CALL_FINISH: self._take_finish,
            CALL_PAUSE: self._take_pause,
            CALL_RESUME: self._take_resume,
            CALL_READ: self._take_read,
        }

    def connect(self, link: Link) -> None:
        """Hand over to ``link`` from now on."""
        self._link = link

    def disconnect(self) -> None:
        """The engine's process is gone: open calls fail, and further ones until ``connect``."""
        self._link = None
        failed, self._open = self._open, {}
        for relayed in failed.values():
            self._large.release(relayed)
            fail(relayed.call, UnavailableError(ENGINE_LOST))

    def method(self, path: str, is_stream: bool, compressed: bool) -> Method:
        """A method whose calls go to the engine."""
        if is_stream:
            return Streaming(partial(self._open_stream, path), compressed)
        return Unary(partial(self.call, path), compressed, self._large.check)

    def call(self, path: str, call: RpcCall, message: Body) -> None:
        """Hand a call with one message over."""
        link = self._link
        if link is None:
            fail(call, UnavailableError(ENGINE_LOST))
            return
        try:
            held_bytes = self._large.take(len(message))
        except QueueFullError as error:
            fail(call, error)
            return
        call.owner = relayed = self._opened(call, held_bytes)
        link.post((CALL, relayed.mark, path, dict(call.metadata), link.place(message)))

    def _open_stream(self, path: str, call: RpcCall) -> RelayedStream:
        if self._link is None:
            fail(call, UnavailableError(ENGINE_LOST))
            return RelayedStream(self, 0, call)
        relayed = self._opened(call)
        call.on_drained = partial(self._taken, relayed.mark)
        self._link.post((CALL_OPEN, relayed.mark, path, dict(call.metadata)))
        return relayed

    def _opened(self, call: RpcCall, held_bytes: int = 0) -> RelayedStream:
        # Never used again, not even the identity of a call that is gone: a response to it may still be on its way.
        mark = self._last_mark = self._last_mark + 1
        relayed = self._open[mark] = RelayedStream(self, mark, call, held_bytes)
        self.handed_over += 1
        return relayed

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
        self._pop(mark)

    def _pop(self, mark: int) -> RelayedStream | None:
        relayed = self._open.pop(mark, None)
        if relayed is not None:
            self._large.release(relayed)
        return relayed

    # Messages of the engine

    def _take_reply(self, mark: int, place: Place) -> None:
        relayed, link = self._pop(mark), self._link
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
        if (relayed := self._pop(mark)) is not None:
            relayed.call.finish(code, text, fields)

    def _take_pause(self, mark: int) -> None:
        if (relayed := self._open.get(mark)) is not None:
            relayed.pause()

    def _take_resume(self, mark: int) -> None:
        if (relayed := self._open.get(mark)) is not None:
            relayed.resume()

    def _take_read(self, mark: int, size: int) -> None:
        if (relayed := self._open.get(mark)) is not None:
            relayed.read(size)

"""The engine's side of gRPC for one front-end process: calls that came as they were, handled by the whole service."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import INTERNAL_FAILURE, NaiadError
from naiad.frontends.grpc.rpc.access_gate import admitted
from naiad.frontends.grpc.rpc.call import Body, Buffer, CallOwner, Methods, Receiver, RpcCall, Streaming, Unary
from naiad.frontends.grpc.rpc.timed_call import with_timing
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
from naiad.wire.grpc.responses import Fields
from naiad.wire.grpc.status import Status

if TYPE_CHECKING:
    from naiad.frontends.access.gate import Gate
    from naiad.request import BatchTimes
    from naiad.server.fronts.link import Handlers, Link, Place

logger = logging.getLogger("naiad")

CONGESTED_BYTES: Final = 1 << 18


class RelayedCall:
    """The ``RpcCall`` of a call whose connection the front-end process has."""

    def __init__(self, session: GrpcSession, mark: int, metadata: Mapping[str, str]) -> None:
        self.owner: CallOwner | None = None
        self.on_drained: Callable[[], None] | None = None
        self.metadata = metadata
        self.ended = False
        self.receiver: Receiver | None = None
        self._session = session
        self._mark = mark
        self._untaken = self._read = 0

    @property
    def congested(self) -> bool:
        """Whether the caller has yet to take many responses."""
        return self._untaken > CONGESTED_BYTES

    def reply(self, parts: Sequence[Buffer], size: int) -> None:
        """Send the only message, and finish."""
        if not self.ended:
            self._end()
            self._session.send(self._mark, CALL_REPLY, parts, size)

    def send(self, parts: Sequence[Buffer], size: int) -> None:
        """Send one message."""
        if not self.ended:
            self._untaken += size
            self._session.send(self._mark, CALL_SEND, parts, size)

    def finish(self, code: int = 0, text: str = "", fields: Fields = ()) -> None:
        """End the call with a status, and with ``fields`` as trailing metadata."""
        if not self.ended:
            self._end()
            self._session.post((CALL_FINISH, self._mark, int(code), text, tuple(fields)))

    def joined(self, batch: BatchTimes) -> None:
        """The front end's connection sends no times: the call around this one does."""

    def pause(self) -> None:
        """Take no further messages for now."""
        if not self.ended:
            self._session.post((CALL_PAUSE, self._mark))

    def resume(self) -> None:
        """Take messages again."""
        if not self.ended:
            self._session.post((CALL_RESUME, self._mark))

    def read(self, size: int) -> None:
        """Note a message of ``size`` bytes, and tell the front end now and then, which sends no more than a window."""
        self._read += size + MESSAGE_BYTES
        if self._read >= WINDOW_BYTES // 4 and not self.ended:
            read, self._read = self._read, 0
            self._session.post((CALL_READ, self._mark, read))

    def taken(self, size: int) -> None:
        """The caller has taken responses of ``size`` bytes."""
        was_congested = self.congested
        self._untaken -= size
        is_drained = not self._untaken or (was_congested and not self.congested)
        if is_drained and not self.ended and self.on_drained is not None:
            self.on_drained()

    def cancel(self) -> None:
        """Nobody waits for a response any more."""
        owner = self.owner
        self._end()
        if owner is not None:
            owner.cancel()

    def _end(self) -> None:
        self.ended = True
        # Cut by hand: the owner refers to this call.
        self.owner = self.receiver = None
        self._session.forget(self._mark)


class GrpcSession:
    """Handles the calls of one front-end process. ``gate`` decides who may call what; None lets everybody."""

    def __init__(self, methods: Methods, gate: Gate | None) -> None:
        self._methods = methods
        self._gate = gate
        self._open: dict[int, RelayedCall] = {}

    def connect(self, link: Link) -> None:
        """Respond over ``link``. Called before the first call."""
        self._link = link

    def handlers(self) -> Handlers:
        """What takes the front end's messages about gRPC."""
        return {
            CALL: self._call,
            CALL_OPEN: self._open_stream,
            CALL_MESSAGE: self._message,
            CALL_END: self._end,
            CALL_STOP: self._stop,
            CALL_CANCEL: self._cancel,
            CALL_TAKEN: self._taken,
        }

    def close(self) -> None:
        """The front end is gone, and with it all callers."""
        for mark in list(self._open):
            self._cancel(mark)

    # Calls

    def post(self, message: tuple[Any, ...]) -> None:
        """Send a message to the front end."""
        self._link.post(message)

    def send(self, mark: int, kind: int, parts: Sequence[Buffer], size: int) -> None:
        """Send a message of a call."""
        self._link.post((kind, mark, self._link.place_parts(parts, size)))

    def forget(self, mark: int) -> None:
        """A call has ended."""
        self._open.pop(mark, None)

    # Messages of the front end

    def _call(self, mark: int, path: str, metadata: dict[str, str], place: Place) -> None:
        call = self._open[mark] = RelayedCall(self, mark, metadata)
        method = self._admitted(call, path)
        if isinstance(method, Unary):
            given: tuple[RpcCall, Body] = (call, self._link.open(place))
            self._guarded(call, method.handle, *given)

    def _open_stream(self, mark: int, path: str, metadata: dict[str, str]) -> None:
        call = self._open[mark] = RelayedCall(self, mark, metadata)
        method = self._admitted(call, path)
        if isinstance(method, Streaming):
            receiver = self._guarded(call, method.open, call)
            if not call.ended:
                call.owner = call.receiver = receiver

    def _admitted(self, call: RelayedCall, path: str) -> Unary | Streaming | None:
        method = with_timing(self._methods.get(path), call.metadata)
        if self._gate is None:
            return method
        try:
            return admitted(method, path, call.metadata, self._gate)
        except NaiadError as error:
            call.finish(error.grpc_code, str(error))
            return None

    def _message(self, mark: int, place: Place) -> None:
        call = self._open.get(mark)
        if call is not None and call.receiver is not None:
            message = self._link.open(place)
            self._guarded(call, call.receiver.receive, message)
            call.read(len(message))

    def _end(self, mark: int) -> None:
        call = self._open.get(mark)
        if call is not None and call.receiver is not None:
            self._guarded(call, call.receiver.end)

    def _stop(self, mark: int) -> None:
        call = self._open.get(mark)
        if call is not None and call.receiver is not None:
            self._guarded(call, call.receiver.stop)

    def _cancel(self, mark: int) -> None:
        call = self._open.get(mark)
        if call is not None:
            self._guarded(call, call.cancel)

    def _taken(self, mark: int, size: int) -> None:
        call = self._open.get(mark)
        if call is not None:
            self._guarded(call, call.taken, size)

    def _guarded(self, call: RelayedCall, work: Callable[..., Any], *arguments: Any) -> Any:
        """The boundary: a fault of a service ends its own call only."""
        try:
            return work(*arguments)
        except Exception:
            logger.exception("a gRPC call failed unexpectedly")
            call.finish(Status.INTERNAL, INTERNAL_FAILURE)
            return None

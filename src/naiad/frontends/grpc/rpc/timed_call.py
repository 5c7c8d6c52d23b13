"""``server-timing`` over gRPC: a call that adds it to the trailing metadata of its response."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from naiad.frontends.grpc.rpc.call import Body, Buffer, CallOwner, Method, RpcCall, Unary
from naiad.frontends.inference.client_request import ClientRequest
from naiad.frontends.inference.server_timing import FIELD, RequestTiming, wants_timing
from naiad.request import BatchTimes
from naiad.wire.grpc.responses import Fields


class TimedCall:
    """A call that wraps another one, and adds the times of the request that owns it when it is finished."""

    __slots__ = ("_inner", "_timing")

    def __init__(self, inner: RpcCall) -> None:
        self._inner = inner
        self._timing: RequestTiming | None = None

    @property
    def owner(self) -> CallOwner | None:
        """The owner of the wrapped call, which hears that the caller has left."""
        return self._inner.owner

    @owner.setter
    def owner(self, owner: CallOwner | None) -> None:
        # A request becomes the owner before it is submitted.
        request: object = owner
        if isinstance(request, ClientRequest):
            self._timing = RequestTiming(request)
        self._inner.owner = owner

    @property
    def on_drained(self) -> Callable[[], None] | None:
        """The callback of the wrapped call, for when its caller has taken the responses."""
        return self._inner.on_drained

    @on_drained.setter
    def on_drained(self, callback: Callable[[], None] | None) -> None:
        self._inner.on_drained = callback

    @property
    def metadata(self) -> Mapping[str, str]:
        """The caller's metadata."""
        return self._inner.metadata

    @property
    def ended(self) -> bool:
        """The call was finished or given up."""
        return self._inner.ended

    @property
    def congested(self) -> bool:
        """Responses pile up."""
        return self._inner.congested

    def joined(self, batch: BatchTimes) -> None:
        """Note the batch that the request runs in."""
        if self._timing is not None:
            self._timing.joined(batch)

    def reply(self, parts: Sequence[Buffer], size: int) -> None:
        """Send the only message, and finish."""
        self.send(parts, size)
        self.finish()

    def send(self, parts: Sequence[Buffer], size: int) -> None:
        """Send one message."""
        self._inner.send(parts, size)

    def finish(self, code: int = 0, text: str = "", fields: Fields = ()) -> None:
        """End the call, with the times behind ``fields``."""
        # Dropped, as it refers to the request.
        timing, self._timing = self._timing, None
        if timing is not None:
            fields = (*fields, (FIELD, timing.text(succeeded=not code)))
        self._inner.finish(code, text, fields)

    def pause(self) -> None:
        """Take no further request messages for now."""
        self._inner.pause()

    def resume(self) -> None:
        """Take request messages again."""
        self._inner.resume()


def with_timing(method: Method | None, metadata: Mapping[str, str]) -> Method | None:
    """``method`` for calls with ``metadata``: with the times of unary calls if it asks for them."""
    if not isinstance(method, Unary) or not wants_timing(metadata):
        return method
    inner = method.handle

    def handle(call: RpcCall, message: Body) -> None:
        inner(TimedCall(call), message)

    return replace(method, handle=handle)

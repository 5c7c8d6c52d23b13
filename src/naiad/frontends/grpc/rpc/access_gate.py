"""The gate before the methods: it decides on the method of a call, once for all calls with the same head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from naiad.errors import RateLimitError
from naiad.frontends.access.features import feature_of_grpc
from naiad.frontends.grpc.rpc.call import Body, Method, Receiver, RpcCall, Streaming, Unary, fail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from naiad.frontends.access.gate import Gate
    from naiad.frontends.access.keys import KnownKey


def admitted(method: Method | None, path: str, metadata: Mapping[str, str], gate: Gate) -> Method | None:
    """``method``, which lies at ``path``, for a caller with ``metadata``; it counts the calls of a key with a limit.

    Raises:
        NaiadError: the caller may not use it; ``Gate.admit`` says which ones.
    """
    key = gate.admit(feature_of_grpc(path), metadata)
    if method is None or key is None:
        # Nothing to count: the key has no limit, or the call only gets UNIMPLEMENTED.
        return method
    return _limited_unary(method, key) if isinstance(method, Unary) else _limited_stream(method, key)


def _limited_unary(method: Unary, key: KnownKey) -> Unary:
    inner = method.handle

    def handle(call: RpcCall, message: Body) -> None:
        try:
            key.take()
        except RateLimitError as error:
            fail(call, error)
        else:
            inner(call, message)

    return replace(method, handle=handle)


def _limited_stream(method: Streaming, key: KnownKey) -> Streaming:
    def open_(call: RpcCall) -> Receiver:
        return _LimitedStream(call, method.open(call), key)

    return replace(method, open=open_)


class _LimitedStream:
    """A stream of requests, each of which counts; the first one beyond the limit ends the call."""

    __slots__ = ("_call", "_inner", "_key")

    def __init__(self, call: RpcCall, inner: Receiver, key: KnownKey) -> None:
        self._call = call
        self._inner = inner
        self._key = key

    def receive(self, message: Body) -> None:
        # Messages that were already received may come after the end: they must not count.
        if self._call.ended:
            return
        try:
            self._key.take()
        except RateLimitError as error:
            fail(self._call, error)
            # By hand: a call that its service finishes does not cancel its owner.
            self._inner.cancel()
        else:
            self._inner.receive(message)

    def end(self) -> None:
        self._inner.end()

    def stop(self) -> None:
        self._inner.stop()

    def cancel(self) -> None:
        self._inner.cancel()

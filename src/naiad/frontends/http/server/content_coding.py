"""Compressed bodies of inference requests, and compressed responses to them.

Both wrap a handler when a request head is seen for the first time: requests without them cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from naiad.errors import InvalidArgumentError, MalformedRequestError, NaiadError, UnsupportedError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler, OuterExchange
from naiad.frontends.http.server.replies import JSON, TEXT, handler_failed, send_error
from naiad.frontends.inference.offload import OFF_LOOP_BYTES, run_off_loop
from naiad.scheduling.admission import RequestBudget
from naiad.wire.compression import EITHER, WINDOW_BITS, BrokenDataError, TooMuchDataError, compress, inflate
from naiad.wire.http1.content_coding import ACCEPTED, IDENTITY, best_coding, coded_head
from naiad.wire.http1.head import HEAD_END, RequestHead

LEVEL: Final = 6
"""The level of zlib for responses, its own default."""

MAX_INFLATED_BYTES: Final = 1 << 30
"""The bytes that the decompressed bodies of all requests in flight may have together."""

_OK: Final = b"HTTP/1.1 200 "


class BodyTooLargeError(InvalidArgumentError):
    """A body has more bytes, once decompressed, than the server accepts."""


class ContentTooLargeError(BodyTooLargeError):
    """The same for servers that use HTTP's own status (``--http-standard-status``)."""

    http_status = 413


class ContentCoding:
    """Wraps handlers with the codings that a head names.

    Args:
        max_body_bytes: the largest body, once decompressed.
        budget: bounds the bodies that wait to be decompressed and the responses that wait to be compressed.
        too_large: the error for a larger body.
    """

    def __init__(
        self, max_body_bytes: int, budget: RequestBudget, too_large: type[BodyTooLargeError] = BodyTooLargeError
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._too_large = too_large
        self._budget = budget
        self._inflated_bytes = 0

    def around(self, handler: Handler, head: RequestHead) -> Handler:
        """``handler``, or a wrapper that decompresses its bodies or compresses its responses, as ``head`` asks."""
        given = head.headers.get("content-encoding", "").lower() or IDENTITY
        wanted = best_coding(head.headers.get("accept-encoding", ""))
        if given != IDENTITY:
            handler = self._decompressing(handler, given) if given in WINDOW_BITS else _refuse
        return handler if wanted == IDENTITY else _compressing(handler, wanted, self._budget)

    def _decompressing(self, handler: Handler, coding: str) -> Handler:
        def handle(exchange: Exchange, body: Body) -> None:
            if not body:
                # The reference's text.
                send_error(exchange, MalformedRequestError("nothing to be decompressed"), JSON)
                return
            deliver = partial(self._deliver, handler, exchange)
            fail = partial(send_error, exchange, content_type=JSON)
            try:
                whole = self._inflate_small(body, coding)
            except NaiadError as error:
                fail(error)
                return
            if whole is None:
                self._inflate_large(body, coding, deliver, fail)
            else:
                deliver(whole)

        return handle

    def _inflate_large(
        self, body: Body, coding: str, deliver: Callable[[bytearray], None], fail: Callable[[NaiadError], None]
    ) -> None:
        """Decompress in the offload thread, which takes one body at a time."""
        try:
            self._budget.check(len(body))
        except NaiadError as error:
            fail(error)
            return
        run_off_loop(
            partial(_inflate, body, coding, self._max_body_bytes, self._too_large),
            deliver,
            fail,
            self._budget,
            len(body),
        )

    def _inflate_small(self, body: Body, coding: str) -> bytearray | None:
        """The decompressed body; None if it is large before or after: a few bytes can become many."""
        if len(body) > OFF_LOOP_BYTES or self._max_body_bytes < OFF_LOOP_BYTES:
            return None
        try:
            return _inflate(body, coding, OFF_LOOP_BYTES)
        except BodyTooLargeError:
            return None

    def _deliver(self, handler: Handler, exchange: Exchange, body: bytearray) -> None:
        # The peer left while a thread decompressed: nothing was counted yet, so nothing is released.
        if exchange.closed():
            return
        # Released with the response: decompressed bodies of requests in flight are bounded together.
        counted = _CountedExchange(exchange, len(body), self._release)
        held = self._inflated_bytes + len(body)
        # The budget may be smaller than one body, which is then served alone.
        if held > MAX_INFLATED_BYTES or (self._inflated_bytes and held > self._budget.max_bytes):
            text = "too many compressed requests are unanswered; try again later"
            send_error(exchange, self._budget.refuse("compressed", text))
            return
        self._inflated_bytes += len(body)
        try:
            # Slices of a view are not copies.
            handler(counted, body if len(body) <= OFF_LOOP_BYTES else memoryview(body))
        except Exception:
            # The connection catches only the exceptions of handlers that it called itself.
            handler_failed(counted)

    def _release(self, size: int) -> None:
        self._inflated_bytes -= size


class _CountedExchange(OuterExchange):
    """Calls ``done`` with its size when it gets its response."""

    __slots__ = ("_done", "_size")

    def __init__(self, inner: Exchange, size: int, done: Callable[[int], None]) -> None:
        super().__init__(inner)
        self._size = size
        self._done = done

    def send(self, parts: bytes | list[Any]) -> None:
        # A second call raises below; it must not release the bytes twice.
        size, self._size = self._size, 0
        self._done(size)
        self._inner.send(parts)


class _CompressingExchange(OuterExchange):
    """Compresses successful responses."""

    __slots__ = ("_budget", "_coding")

    def __init__(self, inner: Exchange, coding: str, budget: RequestBudget) -> None:
        super().__init__(inner)
        self._coding = coding
        self._budget = budget

    def send(self, parts: bytes | list[Any]) -> None:
        first, *rest = [parts] if isinstance(parts, bytes) else parts
        if not first.startswith(_OK):
            self._inner.send(parts)
            return
        end = first.index(HEAD_END) + len(HEAD_END)
        body = [memoryview(first)[end:], *rest]
        pack = partial(compress, body, self._coding, LEVEL)
        size = sum(map(len, body))
        if size <= OFF_LOOP_BYTES:
            self._send_packed(first[:end], pack())
        else:
            # If compressing fails, the response is sent as it is.
            send_plain = partial(self._send_plain, parts)
            run_off_loop(pack, partial(self._send_packed, first[:end]), send_plain, self._budget, size)

    def _send_plain(self, parts: bytes | list[Any], error: NaiadError) -> None:
        self._inner.send(parts)

    def _send_packed(self, head: bytes, packed: bytes) -> None:
        self._inner.send([coded_head(head, self._coding, len(packed)), packed])


def _compressing(handler: Handler, coding: str, budget: RequestBudget) -> Handler:
    def handle(exchange: Exchange, body: bytearray | memoryview) -> None:
        handler(_CompressingExchange(exchange, coding, budget), body)

    return handle


def _refuse(exchange: Exchange, body: Sequence[int]) -> None:
    error = UnsupportedError("Unsupported compression type")
    send_error(exchange, error, TEXT, (("Accept-Encoding", ACCEPTED),))


def _inflate(body: Body, coding: str, limit: int, too_large: type[BodyTooLargeError] = BodyTooLargeError) -> bytearray:
    try:
        # Some clients send gzip as ``deflate``, or the reverse; zlib recognises both.
        return inflate(body, coding, EITHER, limit)
    except BrokenDataError as error:
        raise MalformedRequestError(f"the request body {error}") from None
    except TooMuchDataError:
        raise too_large(
            f"Decompressed data size exceeds the maximum allowed value of {limit} bytes. Use --http-max-input-size to "
            f"increase the limit."
        ) from None

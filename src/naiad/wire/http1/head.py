"""HTTP/1.1 without sockets: request heads, a memo of them, chunked bodies and response heads.

Everything here takes and gives bytes. Source of the rules: RFC 9110 and RFC 9112; where they leave a choice the strict
one is taken, because a proxy in front that reads the same bytes differently is how requests are smuggled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import httptools

from naiad.bounded_dict import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from naiad.worker.ipc.receive_pools import FindArena

    Part = bytes | bytearray | memoryview

MAX_HEAD_BYTES: Final = 65_536
MAX_HEADERS: Final = 128
HEAD_END: Final = b"\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}) ([^\x00-\x20#\x7f]+) HTTP/([0-9])\.([0-9])")
_HEAD_STARTS = frozenset(b"\r!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
# RFC 9112, section 3.2.2: a server accepts the form that clients send to proxies.
_ABSOLUTE_TARGET = re.compile(r"https?://[^/?]*", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,18}")
# Repeated, two readers of the same head could use different values.
_SINGLE_HEADERS = frozenset({"content-length", "host"})
_NEVER_WHOLE: Final = 1 << 62

_REASONS: Final = {
    100: "Continue",
    200: "OK",
    204: "No Content",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    499: "Client Closed Request",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
    507: "Insufficient Storage",
}


class HttpError(Exception):
    """Bytes that are not an acceptable HTTP request. The response has ``status`` and closes the connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class RequestHead:
    """The request line and headers of one request. Shared by all requests with the same bytes.

    The application sets ``handler`` and the attributes behind it, before the first request with this head is handled.
    Nothing changes afterwards.

    Attributes:
        method: as sent; any token.
        target: the path without the query, decoded as latin-1 and not percent-decoded. "*" or an authority for the
            target forms that have no path.
        query: what follows "?", "" when nothing does.
        version: (1, 0) or (1, 1); a higher 1.x counts as 1.1.
        headers: values by lower-case name; repeated ones joined with ", ".
        content_length: as declared, None without the header.
        chunked: the body comes in chunks.
        keep_alive: the connection may carry another request after this one.
        expect_continue: the client waits for "100 Continue" before it sends the body.
        raw: the head's own bytes, with the empty line that ends it.
        request_bytes: size of head and body for a request that only has to be complete in the buffer, else more than
            any buffer holds. A single comparison then detects both incomplete and special requests.
        plain: a complete response can be written as it was encoded (HTTP/1.1, keep-alive, not HEAD).
        handler: the application's handler of the request.
        extra_fields: header lines for every response, each with its line break in front; see ``add_response_fields``.
        refused: the response does not depend on the body, so a body that would take memory is not awaited.
        first_part_bytes: size of the first part of the body, for applications that divide it; what follows is aligned
            in memory. None for a body of one part. The value is the caller's, and may be beyond the body.
        limited_bytes: how much of the body the limit for bodies counts; None for all.
        find_arena: returns the memory into which a large body is to be received; None for any memory.
        needs_room: a large body is received only if the bounds on requests in flight have room for it.
    """

    __slots__ = (
        "chunked",
        "content_length",
        "expect_continue",
        "extra_fields",
        "find_arena",
        "first_part_bytes",
        "handler",
        "headers",
        "keep_alive",
        "limited_bytes",
        "method",
        "needs_room",
        "plain",
        "query",
        "raw",
        "refused",
        "request_bytes",
        "target",
        "version",
    )

    def __init__(
        self,
        method: str,
        target: str,
        query: str,
        version: tuple[int, int],
        headers: dict[str, str],
        raw: bytes = b"",
    ) -> None:
        self.method = method
        self.target = target
        self.query = query
        self.version = version
        self.headers = headers
        self.chunked = _is_chunked(headers, version)
        self.content_length = _content_length(headers)
        self.keep_alive = _keeps_alive(headers, version)
        self.expect_continue = _expects_continue(headers, version)
        special = self.chunked or self.expect_continue or not self.keep_alive
        self.raw = raw
        self.request_bytes = len(raw) + (_NEVER_WHOLE if special else self.content_length or 0)
        self.plain = self.keep_alive and version == (1, 1) and method != "HEAD"
        self.handler: Any = None
        self.extra_fields = b""
        self.refused = False
        self.first_part_bytes: int | None = None
        self.limited_bytes: int | None = None
        self.needs_room = False
        self.find_arena: FindArena | None = None

    def add_response_fields(self, fields: Sequence[tuple[str, str]]) -> None:
        """Add header ``fields`` to the response of every request with this head, whichever handler sends it.

        Call this before the first such request is handled.

        Raises:
            ValueError: a field carries a line break.
        """
        lines = "".join(f"\r\n{name}: {value}" for name, value in fields).encode("latin-1")
        if lines.count(b"\n") != len(fields) or lines.count(b"\r") != len(fields):
            raise ValueError(f"response header with a line break: {_shown(lines)}")
        self.extra_fields += lines
        self.plain = False


class _HeaderLines:
    """Collects header lines from the parser."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.lines.append((name, value))


def parse_head(raw: bytes) -> RequestHead:
    """Read a request head: everything up to and with the empty line that ends it.

    Raises:
        HttpError: 400 malformed, 417 unknown expectation, 431 too large, 501 unknown transfer coding, 505 not HTTP/1.
    """
    if len(raw) > MAX_HEAD_BYTES:
        raise HttpError(431, f"request head of {len(raw)} bytes is larger than {MAX_HEAD_BYTES} bytes")
    check_head_start(raw[0] if raw else 0)
    line, _, rest = raw.partition(b"\r\n")
    method, target, query, version = _parse_request_line(line)
    return RequestHead(method, target, query, version, _parse_headers(rest), raw)


def check_head_start(first: int) -> None:
    """Refuse another protocol by its first byte, since its data may never contain the end of a head.

    Raises:
        HttpError: 400, no request begins with the byte ``first``.
    """
    if first not in _HEAD_STARTS:
        raise HttpError(
            400, f"byte 0x{first:02x} does not begin an HTTP/1.1 request; is the client using TLS or gRPC on this port?"
        )


def _parse_request_line(line: bytes) -> tuple[str, str, str, tuple[int, int]]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise HttpError(400, f"malformed request line {_shown(line)}, expected 'METHOD /path HTTP/1.1'")
    method, raw_target, major, minor = match.groups()
    if major != b"1":
        named = f"HTTP/{major.decode()}.{minor.decode()}"
        raise HttpError(505, f"{named} is not spoken on this port, which expects HTTP/1.1; gRPC has a port of its own")
    target, _, query = raw_target.decode("latin-1").partition("?")
    if not target.startswith("/"):
        target = _path_of_absolute(target)
    return method.decode("ascii"), target, query, (1, 0) if minor == b"0" else (1, 1)


def _path_of_absolute(target: str) -> str:
    """``http://host/path`` -> ``/path``; other forms ("*", "host:port") stay as they are."""
    match = _ABSOLUTE_TARGET.match(target)
    return target if match is None else target[match.end() :] or "/"


def _parse_headers(rest: bytes) -> dict[str, str]:
    if not rest.endswith(HEAD_END) and rest != b"\r\n":
        raise HttpError(400, "request head does not end with an empty line")
    lines = _HeaderLines()
    try:
        # The method is replaced because the parser knows a fixed list of methods and treats some of them specially.
        httptools.HttpRequestParser(lines).feed_data(b"POST / HTTP/1.1\r\n" + rest)
    except httptools.HttpParserUpgrade:
        pass  # The offer of another protocol is declined by going on in this one.
    except httptools.HttpParserError as error:
        raise HttpError(400, f"malformed request headers: {error}") from None
    if len(lines.lines) > MAX_HEADERS:
        raise HttpError(431, f"request has {len(lines.lines)} headers, at most {MAX_HEADERS} are accepted")
    return _joined(lines.lines)


def _joined(lines: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in lines:
        name = raw_name.decode("ascii").lower()
        value = raw_value.decode("latin-1").strip(" \t")
        if name in headers:
            if name in _SINGLE_HEADERS:
                raise HttpError(400, f"header {name} is given more than once")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def _is_chunked(headers: dict[str, str], version: tuple[int, int]) -> bool:
    coding = headers.get("transfer-encoding")
    if coding is None:
        return False
    if version == (1, 0):
        raise HttpError(400, "transfer-encoding is not part of HTTP/1.0")
    # A proxy in front might believe the other of the two (RFC 9112, section 6.1).
    if "content-length" in headers:
        raise HttpError(400, "content-length and transfer-encoding must not be given together")
    if coding.lower() != "chunked":
        raise HttpError(501, f"transfer-encoding {coding[:64]!r} is not supported, expected 'chunked'")
    return True


def _content_length(headers: dict[str, str]) -> int | None:
    value = headers.get("content-length")
    if value is None:
        return None
    # ``int`` would also accept signs, spaces and underscores.
    if _DIGITS.fullmatch(value) is None:
        raise HttpError(400, f"content-length {value[:64]!r} is not a number of bytes")
    return int(value)


def _keeps_alive(headers: dict[str, str], version: tuple[int, int]) -> bool:
    value = headers.get("connection")
    if value is None:
        return version == (1, 1)
    options = [option.strip() for option in value.lower().split(",")]
    if "close" in options:
        return False
    return version == (1, 1) or "keep-alive" in options


def _expects_continue(headers: dict[str, str], version: tuple[int, int]) -> bool:
    value = headers.get("expect")
    # RFC 9110, section 10.1.1: a server ignores it in HTTP/1.0.
    if value is None or version == (1, 0):
        return False
    if value.lower() != "100-continue":
        raise HttpError(417, f"expectation {value[:64]!r} cannot be met, expected '100-continue'")
    return True


def _shown(raw: bytes) -> str:
    """Bytes of a client for an error text: short and printable."""
    text = ascii(raw[:64].decode("latin-1"))
    return text if len(raw) <= 64 else f"{text}..."


class HeadMemo:
    """A cache of parsed heads by their exact bytes, because clients repeat them.

    A head is cached when it comes for the second time: heads with a header that differs every time, such as a trace id,
    do not evict the others. The cache has at most ``entries`` heads of at most ``max_bytes`` bytes each.

    ``complete`` is called with each head that was parsed, to set its handler. It raises an ``HttpError`` for a head to
    refuse, which is not cached.
    """

    def __init__(
        self, entries: int = 1024, max_bytes: int = 2048, complete: Callable[[RequestHead], None] | None = None
    ) -> None:
        self.known: dict[bytes, RequestHead] = BoundedDict(entries)
        self._complete = complete
        # Heads that came once take the memory of a number each.
        self._seen_once: set[int] = set()
        self._entries = entries
        self._max_bytes = max_bytes

    def get(self, raw: bytes) -> RequestHead:
        """The parsed and completed head of ``raw``, which callers share.

        Raises:
            HttpError: as ``parse_head``, or ``complete`` refuses the head.
        """
        head = self.known.get(raw)
        if head is None:
            head = parse_head(raw)
            if self._complete is not None:
                self._complete(head)
            if len(raw) <= self._max_bytes:
                self._remember(raw, head)
        return head

    def clear(self) -> None:
        """Drop every head, and with it the handlers."""
        self.known.clear()

    def _remember(self, raw: bytes, head: RequestHead) -> None:
        # A hash is enough: where two are equal, a head is cached at its first appearance.
        mark = hash(raw)
        if mark not in self._seen_once:
            if len(self._seen_once) >= 4 * self._entries:
                self._seen_once.clear()
            self._seen_once.add(mark)
            return
        self.known[raw] = head


def reason_of(status: int) -> str:
    """The reason phrase of a status; that of 405 is the one the protocol's reference server sends."""
    return _REASONS.get(status, "Unknown")


def encode_head(
    status: int,
    content_type: str,
    content_length: int,
    extra: Sequence[tuple[str, str]] = (),
) -> bytes:
    """A response head up to and with the empty line. An empty ``content_type`` leaves that header out.

    Raises:
        ValueError: a header carries a line break, which would let its value forge headers.
    """
    lines = [f"HTTP/1.1 {status} {reason_of(status)}"]
    if content_type:
        lines.append(f"Content-Type: {content_type}")
    lines += [f"{name}: {value}" for name, value in extra]
    lines.append(f"Content-Length: {content_length}")
    encoded = "\r\n".join(lines).encode("latin-1")
    # One look at the whole instead of one at each header.
    if encoded.count(b"\n") != len(lines) - 1 or encoded.count(b"\r") != len(lines) - 1:
        raise ValueError(f"response header with a line break: {_shown(encoded)}")
    return encoded + HEAD_END


def encode_stream_head(status: int, content_type: str, chunked: bool, keep_alive: bool, lines: bytes = b"") -> bytes:
    """The head of a response whose length is not known yet: in chunks, or up to the end of the connection.

    ``lines`` are further header lines, each with its line break in front.
    """
    framing = "\r\nTransfer-Encoding: chunked" if chunked else ""
    # Without chunks the end of the connection is the end of the body.
    option = "" if chunked and keep_alive else "\r\nConnection: close"
    head = f"HTTP/1.1 {status} {reason_of(status)}\r\nContent-Type: {content_type}{framing}{option}"
    return head.encode("latin-1") + lines + HEAD_END


def adapt_response(response: Sequence[Part], connection: str, without_body: bool, lines: bytes = b"") -> list[Part]:
    """A complete response fitted to its request: a Connection header added ("" for none), the body cut off for HEAD.

    ``lines`` are further header lines, each with its line break in front.

    The head must lie in the first part, as ``encode_head`` makes it.
    """
    first = bytes(response[0])
    end = first.index(HEAD_END)
    option = f"\r\nConnection: {connection}".encode("ascii") if connection else b""
    head = first[:end] + lines + option + HEAD_END
    if without_body:
        return [head]
    return [head + first[end + 4 :], *response[1:]]

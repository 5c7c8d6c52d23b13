"""Header blocks of requests: HPACK, the rules of RFC 9113 for what is inside, and a memo of blocks seen before.

Clients repeat themselves: once their header table is filled, the same call is the same few bytes. A block means the
same as long as the table is the same, so what was read is kept until the table changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from hpack import Decoder
from hpack.exceptions import HPACKError, OversizedHeaderListError

from naiad.wire.http2.frames import ErrorCode, Http2ConnectionError, Http2StreamError

MAX_HEADER_LIST_BYTES: Final = 16_384
"""What a client is told to stay under (SETTINGS_MAX_HEADER_LIST_SIZE)."""
MAX_BLOCK_BYTES: Final = 32_768
"""Largest header block taken, as it comes: beyond it the connection ends unread."""
MAX_KEPT_HEADS: Final = 64
MAX_KEPT_BLOCK: Final = 1024

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\x00\r\n]|\A[ \t]|[ \t]\Z")
_THREE_RESIZES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]){3}")
_PSEUDO: Final = {b":method", b":scheme", b":path", b":authority", b":protocol"}
_FORBIDDEN: Final = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}


class RequestHead:
    """The head of one request, shared by all that come with the same block: never changed.

    Attributes:
        headers: by lower-case name; repeated ones joined with commas, as Latin-1 text.
        route: what the application makes of it, once.
    """

    __slots__ = ("headers", "method", "path", "route")

    def __init__(self, method: str, path: str, headers: dict[str, str]) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.route: Any = None


class HeaderReader:
    """Reads the header blocks of one connection, in their order.

    Attributes:
        known: heads by block, valid for the present header table; look here first.
    """

    __slots__ = ("_decoder", "_find_route", "known")

    def __init__(self, find_route: Callable[[RequestHead], Any]) -> None:
        self._decoder = Decoder(MAX_HEADER_LIST_BYTES)
        self._find_route = find_route
        self.known: dict[bytes, RequestHead] = {}

    def read(self, block: bytes) -> RequestHead:
        """The head of a request whose block is not known.

        Raises:
            Http2ConnectionError: the block cannot be decoded, or holds too much.
            Http2StreamError: it can, and is no proper request.
        """
        table = self._decoder.header_table.dynamic_entries
        before, newest = len(table), table[0] if table else None
        fields = self._decode(block)
        # A change of the table's size can change what blocks mean without any entry coming or going.
        changed = len(table) != before or (table and table[0] is not newest) or _resizes(block)
        if changed:
            self.known.clear()
        head = _request_head(fields)
        head.route = self._find_route(head)
        if not changed and len(block) <= MAX_KEPT_BLOCK:
            if len(self.known) >= MAX_KEPT_HEADS:
                self.known.clear()
            self.known[block] = head
        return head

    def read_trailers(self, block: bytes) -> None:
        """Read the block behind a request's body, of which nothing is used.

        Raises:
            Http2ConnectionError, Http2StreamError: as ``read``.
        """
        self.known.clear()
        for name, value in self._decode(block):
            _check_field(name, value)
            if name.startswith(b":"):
                raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, f"pseudo-header field {_shown(name)} in trailers")

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        if _THREE_RESIZES.match(block):
            raise Http2ConnectionError(
                ErrorCode.COMPRESSION_ERROR, "more than two table size updates in a header block"
            )
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except OversizedHeaderListError:
            raise Http2ConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header list of more than {MAX_HEADER_LIST_BYTES} bytes"
            ) from None
        except (HPACKError, IndexError, ValueError) as error:
            raise Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, f"header block: {str(error)[:100]}") from None


def _resizes(block: bytes) -> bool:
    return bool(block) and block[0] & 0xE0 == 0x20


def _request_head(fields: Iterable[tuple[bytes, bytes]]) -> RequestHead:
    """Check a request's fields and sort them."""
    pseudo: dict[bytes, str] = {}
    headers: dict[str, str] = {}
    for name, value in fields:
        _check_field(name, value)
        if name.startswith(b":"):
            if headers or name in pseudo or name not in _PSEUDO:
                raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, f"pseudo-header field {_shown(name)} is misplaced")
            pseudo[name] = value.decode("latin-1")
            continue
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    for name in (b":method", b":scheme", b":path"):
        if not pseudo.get(name):
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, f"pseudo-header field {_shown(name)} is missing or empty")
    if b":protocol" in pseudo:
        raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "extended CONNECT was not offered")
    return RequestHead(pseudo[b":method"], pseudo[b":path"], headers)


def _check_field(name: bytes, value: bytes) -> None:
    """One field by the rules of RFC 9113, section 8.2."""
    if not _NAME.fullmatch(name.removeprefix(b":")):
        raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, f"header field name {_shown(name)}")
    if _BAD_VALUE.search(value):
        raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, f"value of header field {_shown(name)}")
    if name in _FORBIDDEN or (name == b"te" and value.lower() != b"trailers"):
        raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, f"header field {_shown(name)} belongs to HTTP/1.1")


def _shown(name: bytes) -> str:
    return repr(name[:60])[1:]

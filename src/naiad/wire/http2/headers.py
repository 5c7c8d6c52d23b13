"""Header blocks of requests: HPACK, the rules of RFC 9113 for the fields, and a cache of whole blocks.

Clients repeat themselves: once their header table is filled, the same call is the same few bytes. A block has the same
meaning as long as the table is the same, so decoded blocks are cached until the table changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from hpack import Decoder
from hpack.exceptions import HPACKError, OversizedHeaderListError

from naiad.bounded_dict import BoundedDict
from naiad.wire.http2.fields import checked, shown
from naiad.wire.http2.frames import Http2ConnectionError, Http2ErrorCode, Http2StreamError
from naiad.wire.http2.known_fields import KnownFields

MAX_HEADER_LIST_BYTES: Final = 16_384
"""The limit that clients are sent as SETTINGS_MAX_HEADER_LIST_SIZE."""
MAX_BLOCK_BYTES: Final = 32_768
"""Largest header block taken, as it comes: beyond it the connection ends unread."""
MAX_CACHED_HEADS: Final = 64
MAX_CACHED_BLOCK_BYTES: Final = 1024

# RFC 7541, section 4.2, allows two changes of the table's size at the beginning of a block.
_THREE_RESIZES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]){3}")
_PSEUDO: Final = {":method", ":scheme", ":path", ":authority", ":protocol"}


class Http2RequestHead:
    """The head of a request, shared by all requests with the same block: never change it.

    Attributes:
        headers: by lower-case name; repeated ones joined with commas, as Latin-1 text.
        route: the application's handler of such requests, looked up once.
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

    __slots__ = ("_decoder", "_fields", "_find_route", "known")

    def __init__(self, find_route: Callable[[Http2RequestHead], Any]) -> None:
        # The limit stops the decoder early: a block of few bytes can refer to a large entry many times.
        self._decoder = Decoder(MAX_HEADER_LIST_BYTES)
        self._find_route = find_route
        self._fields = KnownFields(self._decoder.header_table, MAX_HEADER_LIST_BYTES)
        self.known: dict[bytes, Http2RequestHead] = BoundedDict(MAX_CACHED_HEADS)

    def read(self, block: bytes) -> Http2RequestHead:
        """The head of a request whose block is not known.

        Raises:
            Http2ConnectionError: the block cannot be decoded, or holds too much.
            Http2StreamError: the block can be decoded, but it is no proper request.
        """
        # Blocks that leave the table as it is; all others need the decoder.
        if (mostly_known := self._fields.read(block)) is not None:
            return self._cache(block, _request_head(mostly_known))
        table = self._decoder.header_table.dynamic_entries
        before, newest = len(table), table[0] if table else None
        fields = self._decode(block)
        # The same number of entries is no proof: a new one may have pushed out another. And a change of the table's
        # size can change the meaning of blocks although no entry is added or removed.
        changed = len(table) != before or (table and table[0] is not newest) or _resizes(block)
        if changed:
            self.known.clear()
            self._fields.forget()
        head = _request_head(checked(name, value) for name, value in fields)
        # A block that changes the table is decoded each time it comes, because each time changes the table again.
        if not changed:
            return self._cache(block, head)
        head.route = self._find_route(head)
        return head

    def _cache(self, block: bytes, head: Http2RequestHead) -> Http2RequestHead:
        head.route = self._find_route(head)
        if len(block) <= MAX_CACHED_BLOCK_BYTES:
            self.known[block] = head
        return head

    def read_trailers(self, block: bytes) -> None:
        """Check the trailers of a request, whose fields are ignored.

        Raises:
            Http2ConnectionError, Http2StreamError: as ``read``.
        """
        # Trailers are rare, so the caches are dropped without a look at the table.
        self.known.clear()
        self._fields.forget()
        for raw_name, raw_value in self._decode(block):
            name, _ = checked(raw_name, raw_value)
            if name.startswith(":"):
                raise Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, f"pseudo-header field {shown(name)} in trailers")

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        if _THREE_RESIZES.match(block):
            raise Http2ConnectionError(
                Http2ErrorCode.COMPRESSION_ERROR, "more than two table size updates in a header block"
            )
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except OversizedHeaderListError:
            raise Http2ConnectionError(
                Http2ErrorCode.ENHANCE_YOUR_CALM, f"a header list of more than {MAX_HEADER_LIST_BYTES} bytes"
            ) from None
        except (HPACKError, IndexError, ValueError) as error:
            raise Http2ConnectionError(Http2ErrorCode.COMPRESSION_ERROR, f"header block: {str(error)[:100]}") from None


def _resizes(block: bytes) -> bool:
    return bool(block) and block[0] & 0xE0 == 0x20


def _request_head(fields: Iterable[tuple[str, str]]) -> Http2RequestHead:
    """The head of a request from its fields, each of which was ``checked``."""
    pseudo: dict[str, str] = {}
    headers: dict[str, str] = {}
    for name, text in fields:
        if name[0] == ":":
            if headers or name in pseudo or name not in _PSEUDO:
                raise Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, f"pseudo-header field {shown(name)} is misplaced")
            pseudo[name] = text
        else:
            headers[name] = f"{headers[name]},{text}" if name in headers else text
    for name in (":method", ":scheme", ":path"):
        if not pseudo.get(name):
            raise Http2StreamError(
                Http2ErrorCode.PROTOCOL_ERROR, f"pseudo-header field {shown(name)} is missing or empty"
            )
    if ":protocol" in pseudo:
        raise Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, "extended CONNECT was not offered")
    return Http2RequestHead(pseudo[":method"], pseudo[":path"], headers)

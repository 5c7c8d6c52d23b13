"""A cache of single header fields by their bytes, for blocks in which only few fields are new.

Callers repeat all fields of a request except one that is always new, such as a request id or a trace id. Such a block
costs a look-up for each field and the decoding of one. Blocks that change the header table, and everything unusual, are
left to the full decoder.

Source: RFC 7541, section 6.
"""

from __future__ import annotations

from typing import Final

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from naiad.bounded_dict import BoundedDict
from naiad.wire.http2.fields import checked
from naiad.wire.http2.frames import Http2StreamError

MAX_CACHED_FIELDS: Final = 64
MAX_CACHED_FIELD_BYTES: Final = 256
"""The longest field that is cached, in bytes."""

# What a field counts beside its name and value (RFC 9113, section 6.5.2).
_ENTRY_BYTES: Final = 32
_INDEXED: Final = 0x80
_HUFFMAN: Final = 0x80
_CHANGES: Final = 0x60
_LONG: Final = 0x7F
_LONG_NAME: Final = 0x0F


Field = tuple[str, str]


class KnownFields:
    """Decodes blocks that do not change the header table.

    Args:
        table: that of the connection; call ``forget`` when it changes.
        max_list_bytes: largest header list.
    """

    __slots__ = ("_fields", "_max_list_bytes", "_table")

    def __init__(self, table: HeaderTable, max_list_bytes: int) -> None:
        self._table = table
        self._max_list_bytes = max_list_bytes
        # Each with its size as it counts against the limit of a header list.
        self._fields: dict[bytes, tuple[Field, int]] = BoundedDict(MAX_CACHED_FIELDS)

    def forget(self) -> None:
        """Drop all fields: the header table has changed, and with it the meaning of bytes."""
        self._fields.clear()

    def read(self, block: bytes) -> list[Field] | None:
        """The fields of a block, each ``checked``; None for a block that the full decoder has to read."""
        found: list[Field] = []
        known, position, left = self._fields, 0, self._max_list_bytes
        try:
            while position < len(block):
                first = block[position]
                if first & _INDEXED:
                    end = position + 1
                # A field that enters the table, or a change of the table's size.
                elif first & _CHANGES:
                    return None
                else:
                    end = _literal_end(block, position)
                if end > len(block):
                    return None
                raw = block[position:end]
                cached = known.get(raw) or self._read_field(raw)
                if cached is None:
                    return None
                field, size = cached
                left -= size
                if left < 0:
                    return None
                found.append(field)
                position = end
        # The full decoder reads the block again, and raises the error if there is one.
        except (IndexError, HPACKError, Http2StreamError):
            return None
        return found

    def _read_field(self, raw: bytes) -> tuple[Field, int] | None:
        """A field whose bytes are not known, and its size; None where its length takes further bytes."""
        first = raw[0]
        if first & _INDEXED:
            # 0 is no index, and all bits set announce further bytes.
            if first & _LONG in (0, _LONG):
                return None
            name, value = self._table.get_by_index(first & _LONG)
        else:
            start, name = self._name(raw)
            value = _text(raw, start)
        found = checked(bytes(name), bytes(value)), len(name) + len(value) + _ENTRY_BYTES
        if len(raw) <= MAX_CACHED_FIELD_BYTES:
            self._fields[raw] = found
        return found

    def _name(self, raw: bytes) -> tuple[int, bytes]:
        """Where the value of a literal field begins, and its name."""
        index = raw[0] & _LONG_NAME
        if not index:
            return _text_end(raw, 1), _text(raw, 1)
        if index < _LONG_NAME:
            return 1, self._table.get_by_index(index)[0]
        return 2, self._table.get_by_index(index + raw[1])[0]


def _literal_end(block: bytes, position: int) -> int:
    """Where a literal field ends.

    Raises:
        IndexError: the field exceeds the block, or a number in it takes more bytes than usual.
    """
    index = block[position] & _LONG_NAME
    start = position + 1
    if not index:
        start = _text_end(block, start)
    elif index == _LONG_NAME:
        if block[start] & _INDEXED:
            raise IndexError
        start += 1
    return _text_end(block, start)


def _text_end(block: bytes, start: int) -> int:
    length = block[start] & _LONG
    if length < _LONG:
        return start + 1 + length
    more = block[start + 1]
    if more & _INDEXED:
        raise IndexError
    return start + 2 + _LONG + more


def _text(block: bytes, start: int) -> bytes:
    begin = start + 1 if block[start] & _LONG < _LONG else start + 2
    text = block[begin : _text_end(block, start)]
    return decode_huffman(text) if block[start] & _HUFFMAN else text

"""Tensors as base64 text inside JSON, for callers that cannot send binary data behind it.

The text stands for the bytes of binary data: little-endian, row-major, elements of BYTES with their lengths. Source:
RFC 4648, section 4; nothing beside its alphabet is accepted, and no bits beyond the last byte.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from functools import partial
from typing import Final

from naiad.errors import InternalError, MalformedRequestError
from naiad.tensor.bytes_codec import Raw
from naiad.wire.v2.header import InputHeader

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BYTES_OF_GROUP, _GROUP = 3, 4
_URL_SAFE: Final = "-_"


def base64_characters(size: int) -> int:
    """How many characters ``size`` bytes take, the padding included."""
    return -(-size // _BYTES_OF_GROUP) * _GROUP


def _codec() -> tuple[Callable[[str | Raw], bytes], Callable[[Raw], bytes]]:
    """What reads and writes base64: the standard library takes a hundred times as long as pybase64."""
    try:
        from pybase64 import b64decode, b64encode
    except ImportError:
        # There are no wheels for some platforms.
        return partial(a2b_base64, strict_mode=True), partial(b2a_base64, newline=False)
    return partial(b64decode, validate=True), b64encode


_read, _write = _codec()


def encode_base64(raw: Raw) -> bytes:
    """The text of the bytes."""
    return _write(raw)


def decode_size(text: Raw, size: int) -> bytes | None:
    """The ``size`` bytes that a text stands for; None for a text of another length, or that is no base64."""
    # Before the decoding, which a text of the wrong length need not cost.
    raw = _decode(text) if len(text) == base64_characters(size) else None
    return raw if raw is not None and len(raw) == size else None


def decode_base64(given: InputHeader) -> bytes:
    """The bytes of an input whose data are base64 text. Those of BYTES are not validated.

    Raises:
        MalformedRequestError: the text is no base64, or has not the bytes of the input's shape.
    """
    text = given.base64
    if text is None:
        raise InternalError(f"input '{given.name}' has no base64 text")
    # As in ``decode_size``; the length of BYTES does not follow from their shape.
    fits = given.dtype.is_bytes or len(text) == base64_characters(given.elements * given.dtype.itemsize)
    raw = _decode(text) if fits else None
    if raw is None or not (given.dtype.is_bytes or len(raw) == given.elements * given.dtype.itemsize):
        problem = _problem(text) or _wrong_length(given, text)
        raise MalformedRequestError(f"Unable to parse 'data' of input '{given.name}': {problem}")
    return raw


def _decode(text: str | Raw) -> bytes | None:
    """The bytes; None for a text that is no base64."""
    try:
        raw = _read(text)
    except ValueError:
        return None
    # Some releases of the standard library take padding that is not needed.
    if len(text) != base64_characters(len(raw)):
        return None
    rest = len(raw) % _BYTES_OF_GROUP
    # The parsers drop bits beyond the last byte, so that several texts would stand for the same bytes.
    if not rest:
        return raw
    last = text[-_GROUP:]
    return raw if encode_base64(raw[-rest:]) == (last.encode() if isinstance(last, str) else bytes(last)) else None


def _problem(text: str) -> str:
    """The fault of a text that is no base64; "" where there is none."""
    try:
        raw = text.encode("ascii")
    except UnicodeEncodeError as error:
        return _wrong_character(text[error.start], error.start)
    symbols = raw.rstrip(b"=")
    if others := symbols.translate(None, _ALPHABET):
        return _wrong_character(chr(others[0]), symbols.index(others[:1]))
    padding = len(raw) - len(symbols)
    if len(raw) % _GROUP or padding >= _BYTES_OF_GROUP:
        return (
            f"the base64 text has {len(symbols)} characters and {padding} of padding ('='), expected whole groups of "
            f"{_GROUP}"
        )
    if _decode(text) is None:
        return f"the last character of the base64 text, {chr(symbols[-1])!r}, has bits beyond the last byte"
    return ""


def _wrong_character(character: str, position: int) -> str:
    hint = " (the URL-safe alphabet is not accepted)" if character in _URL_SAFE else ""
    found = f"{character!r} at character {position}"
    return f"the base64 text has {found}, expected letters, digits, '+', '/' and '=' at its end{hint}"


def _wrong_length(given: InputHeader, text: str) -> str:
    size = given.elements * given.dtype.itemsize
    dims = ",".join(map(str, given.shape))
    return (
        f"shape [{dims}] of {given.dtype.wire} has {size} bytes, which are {base64_characters(size)} characters of "
        f"base64, found {len(text)} for {len(text) // _GROUP * _BYTES_OF_GROUP - text.count('=')} bytes"
    )

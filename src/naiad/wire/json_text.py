"""JSON as callers write it: text to values, and values as a person would name them."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

from naiad.errors import MalformedRequestError

MAX_NESTING: Final = 100
"""How deep the arrays in the data of an input may be nested. Elsewhere the parser's own limit of 1,024 holds."""
TOO_DEEP: Final = f"JSON nesting depth exceeds maximum allowed limit ({MAX_NESTING})"
"""The reference's text, whose limit holds for the whole body."""

_PARSER_TOO_DEEP: Final = "depth limit exceeded"
_MARK: Final = b"\xef\xbb\xbf"
"""The mark that some editors put before UTF-8; the reference reads on behind it."""


def load_json(raw: bytes | bytearray | memoryview) -> Any:
    """The value of a JSON text; the bare words NaN and Infinity are read too.

    Raises:
        MalformedRequestError: it is no JSON.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        strict = error
    text = bytes(raw)
    if text.startswith(_MARK):
        return load_json(text[len(_MARK) :])
    # The reference reads the bare words NaN and Infinity, which strict JSON does not have.
    if b"NaN" in text or b"Infinity" in text:
        try:
            return _load_loosely(text.decode())
        except (ValueError, RecursionError):
            # The error of the strict parser is the better one.
            pass
    reason = TOO_DEEP if strict.msg.startswith(_PARSER_TOO_DEEP) else strict.msg
    raise MalformedRequestError(f"failed to parse the request JSON buffer: {reason} at {strict.pos}") from None


def dump_json(value: Any) -> bytes:
    """The JSON text that ``load_json`` reads as ``value`` again, the bare words included."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _load_loosely(text: str) -> Any:
    """JSON with the bare words; ``ValueError`` for half of a surrogate pair, which no later step could encode."""
    # Integers as orjson reads them: no later step takes one of more than 64 bits.
    value = json.loads(text, parse_int=orjson.loads)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def kind_of(value: Any) -> str:
    """A JSON value as a person would name it, short."""
    if value is None:
        return "null"
    # A bool is also an int.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value!r}"[:60]
    if isinstance(value, str):
        return "the string " + repr(value if len(value) <= 40 else value[:40] + "...")
    return "an array" if isinstance(value, list) else "an object"

"""Texts that models give: names, ids and messages."""

from __future__ import annotations

from typing import Any


def as_text(value: Any, what: str) -> str:
    """A ``str`` as it is, ``bytes`` as the UTF-8 that they hold.

    The reference takes both wherever it takes a text, so models pass elements of BYTES tensors on as they are.

    Raises:
        TypeError: it is neither; the text begins with ``what``.
        UnicodeDecodeError: the bytes are not UTF-8.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    raise TypeError(f"{what} must be a str, or bytes in UTF-8, found {value!r} of type {type(value)}")

"""BYTES for frameworks that hold text: ``bytes`` to ``str`` and back, as UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np

from naiad.errors import InvalidArgumentError

ObjectArray = np.ndarray[Any, np.dtype[np.object_]]


def decode_strings(array: np.ndarray[Any, Any], name: str) -> ObjectArray:
    """The same shape with ``str`` elements; ``InvalidArgumentError`` names the element that is not UTF-8."""
    return _object_array(decode_list(array, name), array.shape)


def decode_list(array: np.ndarray[Any, Any], name: str) -> list[str]:
    """The elements in row-major order as ``str``; ``InvalidArgumentError`` names the element that is not UTF-8."""
    items = array.ravel().tolist()
    try:
        return [item.decode() for item in items]
    except UnicodeDecodeError:
        # The element is looked for only now: text that is UTF-8 pays for no index.
        raise _not_text(items, name) from None


def encode_strings(array: np.ndarray[Any, Any]) -> ObjectArray:
    """An array of the same shape with ``bytes`` elements."""
    return _object_array([item.encode() for item in array.ravel().tolist()], array.shape)


def encode_list(items: list[str]) -> ObjectArray:
    """A one-dimensional array with ``bytes`` elements."""
    return _object_array([item.encode() for item in items], (len(items),))


def _object_array(items: list[Any], shape: tuple[int, ...]) -> ObjectArray:
    made = np.empty(len(items), np.object_)
    made[:] = items
    return made.reshape(shape)


def _not_text(items: list[bytes], name: str) -> InvalidArgumentError:
    for index, item in enumerate(items):
        try:
            item.decode()
        except UnicodeDecodeError as error:
            return InvalidArgumentError(
                f"input '{name}': element {index} is not UTF-8 text ({error.reason} at byte {error.start}), which the "
                f"model's framework needs for strings; send binary data as UINT8"
            )
    raise ValueError("every element is text")

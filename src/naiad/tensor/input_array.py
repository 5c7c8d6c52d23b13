"""Values of a program as inputs of a request: arrays, lists, strings and tensors of other libraries."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from naiad.errors import InvalidArgumentError
from naiad.tensor.dtypes import BY_NUMPY, BYTES, DataType
from naiad.tensor.packed_bytes import packed_if_large

Array = np.ndarray[Any, Any]

_OBJECT: Final = np.dtype(object)


def input_array(name: str, value: Any, declared: DataType | None) -> tuple[Array, DataType]:
    """A value as an input: an array that models only read, and its datatype.

    Args:
        name: of the input, for the error.
        value: an array, something that becomes one (a list, a tensor with ``__dlpack__`` or ``__array__``), or strings.
        declared: the datatype that lists become; None where it is not known.

    Raises:
        InvalidArgumentError: it has a datatype that the protocol lacks.
    """
    if isinstance(value, np.ndarray):
        array = value
    else:
        array = _as_array(name, value, declared)
    datatype = BY_NUMPY.get(array.dtype)
    if datatype is None or datatype is BYTES:
        return _special(name, array)
    # A view: the caller's own array stays as it is.
    array = array.view() if array.flags.c_contiguous else np.ascontiguousarray(array)
    array.flags.writeable = False
    return array, datatype


def _as_array(name: str, value: Any, declared: DataType | None) -> Array:
    if declared is None or hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    try:
        return np.asarray(value, dtype=declared.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"input '{name}': {error}; expected values of {declared.wire}") from None


def _special(name: str, array: Array) -> tuple[Array, DataType]:
    """Strings, and numbers in another byte order."""
    native = array.dtype.newbyteorder("=")
    if native in BY_NUMPY and native != _OBJECT:
        return input_array(name, array.astype(native), None)
    if array.dtype.kind not in "OSU":
        raise InvalidArgumentError(f"input '{name}' is an array of {array.dtype}, which is no datatype of the protocol")
    return packed_if_large(string_objects(f"input '{name}'", array), f"input '{name}'"), BYTES


def string_objects(place: str, array: Array) -> Array:
    """Strings of any kind as an array of ``bytes`` objects.

    Args:
        place: names the tensor in errors.

    Raises:
        InvalidArgumentError: an element is neither ``str`` nor ``bytes``.
    """
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = [_bytes(place, element) for element in array.reshape(-1).tolist()]
    return made


def _bytes(place: str, element: Any) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise InvalidArgumentError(f"{place}: an element is {type(element).__name__}, expected str or bytes")

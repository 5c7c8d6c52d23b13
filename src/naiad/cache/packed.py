"""Responses as bytes, for caches outside of this process.

The format: 8 bytes of magic, the length of the head, the head as JSON, then one tensor after another. Others may write
to the cache, so every part is checked when it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
import orjson

from naiad.config.spec import ModelSpec
from naiad.errors import InvalidArgumentError
from naiad.request import NO_PARAMETERS, Array, Outputs, RequestOptions
from naiad.tensor.bytes_codec import Raw, decode_bytes
from naiad.tensor.dtypes import BY_NUMPY, BY_WIRE, BYTES, DataType
from naiad.tensor.packed_bytes import PackedStrings, as_strings, serialised, stays_packed

MAGIC: Final = b"naiad\0\0\1"
MAX_VALUE: Final = 16 << 20
"""Larger responses are not cached."""
_LENGTH: Final = struct.Struct("<I")
_MAX_HEAD: Final = 64 << 10
_MAX_DIM: Final = 1 << 40
_MAX_DIMS: Final = 32


class UnreadableValueError(Exception):
    """The value of a key is not a response to the request."""


def pack(outputs: Mapping[str, Array], spec: ModelSpec, rows: int) -> bytes | None:
    """Pack a response of ``rows`` rows; None when it is too large."""
    tensors: list[list[object]] = []
    data: list[Raw] = []
    for name, array in outputs.items():
        dtype = _dtype_of(array)
        raw = serialised(array) if dtype.is_bytes else array.tobytes()
        tensors.append([name, dtype.wire, list(array.shape), len(raw)])
        data.append(raw)
    # Front ends trust the datatypes and shapes of a plain dictionary, so ``unpack`` must know which kind to make.
    is_plain = not isinstance(outputs, Outputs) and all(
        _is_as_configured(n, _dtype_of(a), a.shape, spec, rows) for n, a in outputs.items()
    )
    parameters = dict(outputs.parameters) if isinstance(outputs, Outputs) else {}
    head = orjson.dumps({"plain": is_plain, "parameters": parameters, "tensors": tensors})
    if len(head) > _MAX_HEAD or sum(map(len, data)) + len(head) > MAX_VALUE - 64:
        return None
    return b"".join((MAGIC, _LENGTH.pack(len(head)), head, *data))


def unpack(value: bytes, spec: ModelSpec, options: RequestOptions) -> Mapping[str, Array]:
    """Unpack a response to a request with ``options``; its arrays are read-only.

    Raises:
        UnreadableValueError: the format is wrong, or it is not a response to such a request.
    """
    try:
        return _unpacked(value, spec, options)
    except (ValueError, TypeError, KeyError, OverflowError, struct.error, InvalidArgumentError) as error:
        raise UnreadableValueError(f"{type(error).__name__}: {error}") from None


def _unpacked(value: bytes, spec: ModelSpec, options: RequestOptions) -> Mapping[str, Array]:
    if len(value) > MAX_VALUE or not value.startswith(MAGIC):
        raise ValueError("it is not of this form")
    begin = len(MAGIC) + _LENGTH.size
    end = begin + _LENGTH.unpack_from(value, len(MAGIC))[0]
    if end - begin > _MAX_HEAD or end > len(value):
        raise ValueError("its head has another length")
    head = orjson.loads(value[begin:end])
    found: dict[str, Array] = {}
    view = memoryview(value)
    for name, wire, shape, size in head["tensors"]:
        # ``type`` and not ``isinstance``: JSON's true would pass as 1.
        if name in found or name not in options.outputs or type(size) is not int or not 0 <= size <= len(value) - end:
            raise ValueError(f"tensor {name!r} was not asked for, or does not lie in it")
        dtype = BY_WIRE[wire]
        _check_shape(shape)
        # Checked here, because front ends trust the arrays of a plain dictionary.
        if head["plain"] is True and not _is_as_configured(name, dtype, shape, spec, options.rows):
            raise ValueError(f"tensor {name!r} is none of the model's")
        found[name] = _array(view[end : end + size], dtype, shape)
        end += size
    if end != len(value):
        raise ValueError("its length is another")
    if head["plain"] is True:
        return found
    return Outputs(found, _parameters(head["parameters"]) or NO_PARAMETERS)


def _check_shape(shape: Any) -> None:
    is_shape = type(shape) is list and len(shape) <= _MAX_DIMS
    if not is_shape or not all(type(n) is int and 0 <= n < _MAX_DIM for n in shape):
        raise ValueError("a shape is none")


def _array(raw: memoryview, dtype: DataType, shape: Sequence[int]) -> Array:
    elements = prod(shape)
    if dtype.is_bytes and stays_packed(len(raw), elements):
        packed = PackedStrings(raw, shape, "a kept answer")
        # The strings are passed on as they are, so nothing later would find a wrong length in them.
        packed.check()
        return as_strings(packed)
    if dtype.is_bytes:
        made: Array = decode_bytes(raw, elements, "a kept answer").reshape(shape)
    else:
        if elements * dtype.itemsize != len(raw):
            raise ValueError("a tensor has another size than its shape")
        made = np.frombuffer(raw, dtype.numpy).reshape(shape).copy()
        # numpy takes any byte for a BOOL, and other values would reach clients.
        if dtype.numpy == np.bool_ and made.size and made.view(np.uint8).max() > 1:
            raise ValueError("a BOOL is neither 0 nor 1")
    made.flags.writeable = False
    return made


def _parameters(found: Any) -> dict[str, bool | int | float | str]:
    if type(found) is not dict or not all(isinstance(v, bool | int | float | str) for v in found.values()):
        raise ValueError("its parameters are none")
    return found


def _dtype_of(array: Array) -> DataType:
    return BYTES if array.dtype.hasobject else BY_NUMPY[array.dtype]


def _is_as_configured(name: str, dtype: DataType, shape: Sequence[int], spec: ModelSpec, rows: int) -> bool:
    tensor = spec.outputs.get(name)
    if tensor is None or tensor.dtype is not dtype or len(shape) != len(tensor.shape):
        return False
    wanted = (rows, *tensor.shape[1:]) if spec.max_batch_size else tensor.shape
    return all(n == w or w < 0 for n, w in zip(shape, wanted, strict=True))

"""The elements of tensors in the binary form of the protocol."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence

from naiad.perf.input.error import PerfInputError
from naiad.perf.steps import TensorDescription
from naiad.tensor.dtypes import BY_WIRE, DataType

_LENGTH = struct.Struct("<I")


def encode_bytes_elements(elements: Iterable[bytes]) -> bytes:
    """BYTES elements one after the other, each behind its length of four bytes."""
    pack = _LENGTH.pack
    return b"".join([part for element in elements for part in (pack(len(element)), element)])


def datatype_of(tensor: TensorDescription) -> DataType:
    """The datatype of an input or output.

    Raises:
        PerfInputError: the protocol has no such datatype.
    """
    found = BY_WIRE.get(tensor.datatype)
    if found is None:
        raise PerfInputError(
            f"tensor '{tensor.name}' has the datatype '{tensor.datatype}', expected one of {', '.join(BY_WIRE)}"
        )
    return found


def element_count(shape: Sequence[int]) -> int:
    """How many elements a shape without variable dimensions has."""
    return math.prod(shape)


def shape_text(shape: Sequence[int]) -> str:
    """A shape as errors show it: ``[1,-1]``."""
    return f"[{','.join(map(str, shape))}]"

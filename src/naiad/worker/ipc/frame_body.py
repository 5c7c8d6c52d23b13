"""The payload of a frame with tensors: their description, then the small tensors; large ones lie in segments.

Both sides of the connection write and read it with this module: requests, responses, and calls with their responses.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Callable, Sequence

import numpy as np

from .frames import ALIGNMENT, FRAME, IN_PARTS, PLACE, SEGMENT_BYTES
from .segments import Segment
from .types import Array, Place

PADDING = [bytes(n) for n in range(ALIGNMENT)]
"""Zero bytes by their number, to fill the room up to the next multiple of ``ALIGNMENT``."""
OpenSegment = Callable[[int, int, int], Array]
"""Opens the bytes of a tensor in a segment of the other side, by number, offset and size."""


def aligned(offset: int) -> int:
    """The first multiple of ``ALIGNMENT`` from ``offset`` on, in bytes."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


# Cached: one struct for each number of tensors serves all schemas.
@lru_cache(maxsize=256)
def places_struct(count: int) -> struct.Struct:
    """The struct of ``count`` places in a row, four numbers each."""
    return struct.Struct("<" + PLACE.format[1:] * count)


class FrameBody:
    """A payload while it is put together.

    Args:
        take_segment: returns a segment of at least that many bytes, already announced to the other side; None where the
            system has no memory to share: the tensor then travels in the frame.
        heads: the payload's first parts.

    Attributes:
        heads: the description of the tensors, in the order in which it is sent.
        taken: numbers of the segments and lent tensors in use, to be released if the frame is not sent.
    """

    __slots__ = ("_data", "_data_bytes", "_take_segment", "heads", "taken")

    def __init__(self, take_segment: Callable[[int], Segment | None], *heads: bytes) -> None:
        self.heads: list[bytes] = list(heads)
        self.taken: list[int] = []
        self._take_segment = take_segment
        self._data: list[Any] = []
        self._data_bytes = 0

    def add(self, data: Any, size: int) -> None:
        """Add a tensor of ``size`` bytes; ``data`` has the buffer protocol and is one row-major block."""
        if size >= SEGMENT_BYTES and (segment := self._take_segment(size)) is not None:
            self.taken.append(segment.number)
            segment.write(data, size)
            self.heads.append(PLACE.pack(segment.number, 0, 0, size))
            return
        self.heads.append(PLACE.pack(0, 0, self._data_bytes, size))
        # Not copied yet: ``frame`` joins all parts in one copy.
        self._data.append(data)
        gap = -size % ALIGNMENT
        if gap:
            self._data.append(PADDING[gap])
        self._data_bytes += size + gap

    def add_lent(self, number: int, offset: int, size: int) -> None:
        """Add a tensor that stays where it is, in an arena."""
        self.taken.append(number)
        self.heads.append(PLACE.pack(number, 0, offset, size))

    def add_apart(self, count: int, size: int) -> None:
        """Make the last ``count`` tensors, of ``size`` bytes together, parts of one that the other side joins."""
        places = b"".join(self.heads[-count:])
        self.heads[-count:] = [PLACE.pack(count, IN_PARTS, self._data_bytes, size)]
        gap = -len(places) % ALIGNMENT
        self._data += (places, PADDING[gap])
        self._data_bytes += len(places) + gap

    def add_joined(self, parts: Sequence[Any], size: int) -> None:
        """Add one tensor of ``size`` bytes that consists of ``parts`` one after the other.

        A part has the buffer protocol, or ``read_into(buffer)`` and ``nbytes``: it is read to where it belongs.
        """
        if size >= SEGMENT_BYTES and (segment := self._take_segment(size)) is not None:
            self.taken.append(segment.number)
            join_into(segment.bytes[:size], parts)
            self.heads.append(PLACE.pack(segment.number, 0, 0, size))
            return
        self.heads.append(PLACE.pack(0, 0, self._data_bytes, size))
        # A part that lies in a region is read now, to become part of the frame.
        self._data += [part.read() if hasattr(part, "read_into") else part for part in parts]
        gap = -size % ALIGNMENT
        if gap:
            self._data.append(PADDING[gap])
        self._data_bytes += size + gap

    def frame(self, kind: int, number: int) -> bytes:
        """The whole frame."""
        described = b"".join(self.heads)
        if not self._data:
            return FRAME.pack(kind, len(described), number) + described
        gap = -len(described) % ALIGNMENT
        head = FRAME.pack(kind, len(described) + gap + self._data_bytes, number)
        return b"".join((head, described, PADDING[gap], *self._data))


def join_into(target: Array, parts: Sequence[Any]) -> None:
    """Copy ``parts``, as ``FrameBody.add_joined`` has them, into an array of bytes, one after the other."""
    at = 0
    for part in parts:
        if isinstance(part, np.ndarray):
            source = part.reshape(-1).view(np.uint8)
        elif hasattr(part, "read_into"):
            part.read_into(target[at : at + part.nbytes].data)
            at += part.nbytes
            continue
        else:
            source = np.frombuffer(part, np.uint8)
        target[at : at + source.size] = source
        at += source.size


def locate(open_segment: OpenSegment, payload: bytearray, places: Sequence[int], data: int) -> tuple[Place, ...]:
    """Buffer, offset and size of each of the unpacked places; ``data`` is where the payload's data part begins."""
    # The most frequent case, one small tensor, without the loop.
    if len(places) == 4 and not places[0]:
        return ((payload, data + places[2], places[3]),)
    return tuple(
        (open_segment(segment, offset, size), 0, size) if segment else (payload, data + offset, size)
        for segment, offset, size in zip(places[::4], places[2::4], places[3::4])
    )


def raw_array(open_segment: OpenSegment, payload: bytearray, place: Sequence[int], data: int) -> Array:
    """The bytes of one tensor as an array; arguments as ``locate``."""
    segment, _, offset, size = place
    if segment:
        return open_segment(segment, offset, size)
    # An empty tensor may lie at the very end, where frombuffer would refuse the offset.
    return np.frombuffer(payload, np.uint8, size, data + offset if size else 0)

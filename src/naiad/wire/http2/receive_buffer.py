"""``ReceiveBuffer``: where the connections of one event loop receive bytes that do not go into a message at once."""

from __future__ import annotations

from typing import Final

from naiad.wire.http2.frames import FRAME_HEAD_BYTES

BEGINNING_BYTES: Final = 1 << 14
"""How much is received into the buffer behind a large message."""
MAX_SCATTERED: Final = 64
"""The most frames whose heads one read puts aside."""


class ReceiveBuffer:
    """The buffer, and views of its parts, which are made once for all connections.

    Attributes:
        bytes: the whole buffer.
        view: a view of it.
        beginning: a view of its first ``BEGINNING_BYTES``.
    """

    __slots__ = ("_heads", "beginning", "bytes", "view")

    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)
        self.view = memoryview(self.bytes)
        self.beginning = self.view[:BEGINNING_BYTES]
        self._heads: list[memoryview] = []

    @property
    def heads(self) -> list[memoryview]:
        """Places for the heads of ``MAX_SCATTERED`` frames, one behind the other, at the beginning."""
        if not self._heads:
            end = MAX_SCATTERED * FRAME_HEAD_BYTES
            self._heads = [self.view[at : at + FRAME_HEAD_BYTES] for at in range(0, end, FRAME_HEAD_BYTES)]
        return self._heads

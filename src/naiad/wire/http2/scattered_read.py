"""One read for what is left of a DATA frame and for the frames behind it, with their data straight into the message.

Most peers cut a large message into frames of 16 KiB, the most that every peer must accept: Go's gRPC, proxies. Whoever
knows the first of them can tell where the heads of the others will be.
"""

from __future__ import annotations

from typing import NamedTuple

from naiad.wire.http2.frames import DATA, FRAME_HEAD_BYTES, frame_head
from naiad.wire.http2.incomplete import IncompleteFrame
from naiad.wire.http2.receive_buffer import MAX_SCATTERED, ReceiveBuffer


class Scattered(NamedTuple):
    """What was received.

    Attributes:
        first: bytes of data of the incomplete frame, now in the message.
        frames: whole frames behind it whose data are in the message.
        begun: bytes of data of another one, in the message too.
        rest: the bytes behind all these.
        is_expected: nothing else stood between the frames.
    """

    first: int
    frames: int
    begun: int
    rest: bytes
    is_expected: bool


class ScatteredRead:
    """The parts of memory for one read.

    Args:
        memory: where the data of the stream go next, with room for two more frames of the length of ``partial``.
        partial: the incomplete frame.
        buffer: for the heads, and for what follows the last frame.

    Attributes:
        parts, size: the parts and their bytes together.
    """

    __slots__ = ("_frames", "_left", "_length", "_scratch", "_stream_id", "parts", "size")

    def __init__(self, memory: memoryview, partial: IncompleteFrame, stream_id: int, buffer: ReceiveBuffer) -> None:
        self._left, self._length = left, length = partial.left, partial.length
        self._stream_id = stream_id
        self._scratch = scratch = buffer.beginning
        # Without the last frame of the message: it is shorter or says that the request ends, so its head differs.
        frames = self._frames = min((len(memory) - left - 1) // length, MAX_SCATTERED)
        end = left + frames * length
        heads = frames * FRAME_HEAD_BYTES
        self.parts = parts = [memory[:left]] * (2 * frames + 2)
        parts[1:-1:2] = buffer.heads[:frames]
        parts[2:-1:2] = [memory[at : at + length] for at in range(left, end, length)]
        parts[-1] = scratch[heads:]
        self.size = end + len(scratch)

    def received(self, size: int) -> Scattered:
        """What the first ``size`` bytes of the parts are."""
        first = min(size, self._left)
        size -= first
        step = FRAME_HEAD_BYTES + self._length
        frames = min(size // step, self._frames)
        rest = size - frames * step
        # Of a further frame whose head is whole.
        begun = max(rest - FRAME_HEAD_BYTES, 0) if frames < self._frames else 0
        expected = frame_head.pack(self._length << 8 | DATA, 0, self._stream_id) * (frames + (begun > 0))
        at = len(expected)
        if self._scratch[:at] != expected:
            return Scattered(first, 0, 0, b"".join(self.parts[1:])[:size], False)
        return Scattered(first, frames, begun, b"" if begun else bytes(self._scratch[at : at + rest]), True)

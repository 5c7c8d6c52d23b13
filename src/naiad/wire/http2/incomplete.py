"""What has not arrived whole on an HTTP/2 connection: a DATA frame, a header block."""

from __future__ import annotations

from naiad.wire.http2.stream import Stream


class IncompleteFrame:
    """An incomplete DATA frame: ``left`` of its ``length`` bytes of data are missing, then ``skip`` bytes of padding.

    Frames of unknown types are skipped as frames without data.
    """

    __slots__ = ("ended", "left", "length", "skip", "stream")

    def __init__(self, stream: Stream | None, left: int, skip: int, ended: bool) -> None:
        self.stream = stream
        self.length = self.left = left
        self.skip = skip
        self.ended = ended


class IncompleteBlock:
    """A header block that continues in CONTINUATION frames."""

    __slots__ = ("ended", "frames", "raw", "stream_id")

    def __init__(self, stream_id: int, ended: bool, raw: bytes) -> None:
        self.stream_id = stream_id
        self.ended = ended
        self.raw = bytearray(raw)
        self.frames = 1

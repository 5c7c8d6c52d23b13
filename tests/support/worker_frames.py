"""Frames between the server and a worker, as they were sent."""

from __future__ import annotations

from naiad.worker.ipc.frames import FRAME


def payloads_by_kind(data: bytes) -> dict[int, bytes]:
    """The payloads of the frames in ``data``, no two of one kind, in their order."""
    found = {}
    while data:
        kind, size, _ = FRAME.unpack_from(data)
        found[kind], data = data[FRAME.size : FRAME.size + size], data[FRAME.size + size :]
    return found

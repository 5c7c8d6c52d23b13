"""Where log lines go: a stream that is written at once when it can take them, and never waited for."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

_CHUNK = 4096
"""Bytes that a pipe which polls as writable takes without blocking (PIPE_BUF on Linux)."""

_BACKLOG = 1 << 20
"""The most bytes buffered for a stream that is full; further lines are dropped and counted."""


def plain_notice(count: int) -> str:
    """The line that says how many lines were dropped."""
    return f"{count} log lines were dropped: the stream did not take them\n"


class LogSink:
    """Writes whole lines to a stream from any thread. ``dropped`` makes the line about a number of dropped ones.

    A stream that is full (a pipe that nobody reads) gets a thread of its own until it has caught up, so that the caller
    never blocks. A stream that is closed or broken, or None in a process that was started without it, drops every line:
    a log has no place to report its own failure.
    """

    def __init__(self, stream: TextIO | None, dropped: Callable[[int], str] = plain_notice) -> None:
        self._stream = stream
        self._notice = dropped
        self._descriptor = _descriptor(stream)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        # Reentrant: the collector may run inside and log a warning of its own.
        self._lock = threading.RLock()
        self._drainer: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Write ``line``, which ends in a newline, now or as soon as the stream takes it."""
        if self._descriptor is None:
            if self._stream is not None:
                _write_text(self._stream, line)
            return
        data = line.encode("utf-8", "backslashreplace")
        with self._lock:
            # While the drainer runs it alone writes, so lines keep their order.
            if self._drainer is None:
                data = _write_ready(self._descriptor, data)
            if data:
                self._buffer(data)

    def flush(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` seconds until the buffered lines are written."""
        drainer = self._drainer
        if drainer is not None:
            drainer.join(timeout_s)

    def _buffer(self, data: bytes) -> None:
        if self._waiting_bytes + len(data) > _BACKLOG:
            self._dropped += 1
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._drainer is None:
            self._drainer = threading.Thread(target=self._drain, name="naiad-log", daemon=True)
            self._drainer.start()

    def _drain(self) -> None:
        while data := self._next():
            # Outside the lock: this write waits for the reader, and callers must not.
            _write_all(self._descriptor, data)

    def _next(self) -> bytes:
        """The next bytes to write: buffered lines, then the notice of dropped lines, then none: the drainer is done."""
        with self._lock:
            if self._waiting:
                data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
                return data
            if self._dropped:
                notice = self._notice(self._dropped)
                self._dropped = 0
                return notice.encode()
            # Under the lock: a line of another thread was either seen above, or starts the next drainer.
            self._drainer = None
            return b""


def _descriptor(stream: TextIO | None) -> int | None:
    """The file descriptor of ``stream``, None for one in memory or on a system that cannot ask whether it is full."""
    if stream is None or not hasattr(select, "poll"):
        return None
    try:
        stream.flush()
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _write_text(stream: TextIO, line: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError):  # a full disk, a closed stream
        return


def _write_ready(descriptor: int, data: bytes) -> bytes:
    """Write as much as possible without blocking; returns the rest, which is empty when the stream is broken."""
    try:
        while data and _is_ready(descriptor, 0):
            data = data[os.write(descriptor, data[:_CHUNK]) :]
    except BlockingIOError:
        return data
    except OSError:
        return b""
    return data


def _write_all(descriptor: int | None, data: bytes) -> None:
    """Write all of ``data``, waiting as long as it takes, or nothing more once the stream is broken."""
    while data and descriptor is not None:
        _is_ready(descriptor, None)
        data = _write_ready(descriptor, data)


def _is_ready(descriptor: int, timeout_ms: int | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(timeout_ms))

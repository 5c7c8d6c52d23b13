"""The server's end of the connection to one worker: reads and writes frames on the event loop, and never waits."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from array import array
from collections import deque
from collections.abc import Callable
from typing import Final

from naiad.errors import InternalError
from naiad.eventloop.end_of_turn import end_of_turn_queue
from naiad.worker.ipc.frames import DROP_SEGMENT, FRAME, READY, RESPONSES_UNIFORM, SCHEMA

logger = logging.getLogger("naiad")

RECEIVE_BYTES: Final = 1 << 18
MAX_DESCRIPTORS: Final = 64
KINDS: Final = frozenset((*range(READY, RESPONSES_UNIFORM + 1), *range(SCHEMA, DROP_SEGMENT + 1)))
"""The kinds of frames that a worker sends."""
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
# Workers that start later must not inherit a descriptor that was just received.
_FLAGS: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class WorkerChannel:
    """Reads and writes frames on the event loop.

    Args:
        name: of the instance, for the log.
        connection: to the worker, non-blocking; whoever made it closes it.
        take: called with kind, number and payload of each frame; the payload is its own to keep.
        lost: called when the worker has closed the connection or sent an invalid frame. The owner then closes this
            channel.
        kinds: the kinds of frames that the other side may send.

    Attributes:
        problem: what was wrong with its last frame, "" for nothing.
        on_read: called when all complete frames that one reading gave have been taken.
        on_drained: called when the worker has taken all that waited for it.
    """

    def __init__(
        self,
        name: str,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[int, int, bytearray], object],
        lost: Callable[[], object],
        kinds: frozenset[int] = KINDS,
    ) -> None:
        self.problem = ""
        self.on_read: Callable[[], object] | None = None
        self.on_drained: Callable[[], object] | None = None
        self._name = name
        self._connection = connection
        self._loop = loop
        self._end_of_turn = end_of_turn_queue(loop)
        self._take = take
        self._lost = lost
        self._kinds = kinds
        self._is_open = True
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        # The beginning of a frame whose rest has not arrived.
        self._rest = bytearray()
        self._unsent: deque[tuple[memoryview, int]] = deque()
        self._descriptors: deque[int] = deque()
        loop.add_reader(connection.fileno(), self.read)

    def close(self) -> None:
        """Stop, and drop frames that are half received or not yet sent. May be called twice."""
        if not self._is_open:
            return
        self._is_open = False
        self.on_drained = self.on_read = None
        self._loop.remove_reader(self._connection.fileno())
        self._loop.remove_writer(self._connection.fileno())
        for descriptor in (*self._descriptors, *(d for _, d in self._unsent)):
            _close(descriptor)
        self._descriptors.clear()
        self._unsent.clear()
        # Nothing more is received; whoever still refers to this channel should not keep that much memory.
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)

    def take_descriptor(self) -> int:
        """The descriptor that came with the frame at hand; it is the caller's to close."""
        return self._descriptors.popleft()

    # Sending

    @property
    def waiting(self) -> int:
        """How many frames wait because the worker does not read."""
        return len(self._unsent)

    def send(self, data: bytes, descriptor: int = -1) -> None:
        """Send as soon as there is room, with a descriptor on the first byte unless it is -1.

        Nothing is raised when the worker is gone: reading finds that out.
        """
        if not self._is_open:
            _close(descriptor)
            return
        sent = 0
        if descriptor < 0 and not self._unsent:
            # Nearly always all of it goes at once.
            try:
                sent = self._connection.send(data)
            except BlockingIOError:
                pass
            except OSError:
                return
            if sent == len(data):
                return
        view = memoryview(data)[sent:]
        if not self._unsent:
            view, descriptor = self._send_now(view, descriptor)
        if len(view):
            self._unsent.append((view, descriptor))
            if len(self._unsent) == 1:
                self._loop.add_writer(self._connection.fileno(), self._send_rest)

    def _send_now(self, view: memoryview, descriptor: int) -> tuple[memoryview, int]:
        """Send what fits; what is left, and its descriptor."""
        try:
            while len(view):
                sent = self._connection.send(view) if descriptor < 0 else self._send_with(view, descriptor)
                view = view[sent:]
                # It went with the first byte, and the worker has its own copy.
                _close(descriptor)
                descriptor = -1
        except BlockingIOError:
            return view, descriptor
        except OSError:
            _close(descriptor)
            return view[:0], -1
        return view, descriptor

    def _send_with(self, view: memoryview, descriptor: int) -> int:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]).tobytes())]
        return self._connection.sendmsg([view], rights)

    def _send_rest(self) -> None:
        while self._unsent:
            view, descriptor = self._send_now(*self._unsent[0])
            if len(view):
                self._unsent[0] = (view, descriptor)
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._connection.fileno())
        if self.on_drained is not None:
            self.on_drained()

    # Receiving

    def read(self) -> None:
        """Take what has arrived, as far as one reading goes."""
        try:
            size, ancillary, _, _ = self._connection.recvmsg_into([self._view], _ANCILLARY_BYTES, _FLAGS)
        except BlockingIOError:
            return
        except OSError:
            # The worker ended without reading everything that was sent to it.
            size, ancillary = 0, []
        if ancillary:
            self._keep_descriptors(ancillary)
        if not size:
            self._lost()
            return
        # What follows from these frames is due right after the last of them, without another poll.
        due = self._end_of_turn.begin()
        try:
            if self._rest:
                # Only a frame in several pieces is copied together first.
                self._rest += self._view[:size]
                self._take_frames(self._rest, len(self._rest))
            else:
                self._take_frames(self._buffer, size)
            if self.on_read is not None:
                self.on_read()
        except Exception:
            # Its memory may be damaged, and none of its further frames can be trusted.
            logger.exception("%s said what cannot be understood", self._name)
            self.problem = "it wrote to its connection what cannot be understood"
            self._lost()
        finally:
            self._end_of_turn.end(self._loop, due)

    def _take_frames(self, received: bytearray, end: int) -> None:
        """Take the complete frames in ``received[:end]``, and store the rest."""
        at = 0
        # A frame may lead to ``close``, and the frames behind it are then void.
        while end - at >= FRAME.size and self._is_open:
            kind, length, number = FRAME.unpack_from(received, at)
            if kind not in self._kinds:
                # Before waiting for the length that it claims: that may be gigabytes.
                raise InternalError(f"a frame of the unknown kind {kind}")
            begin = at + FRAME.size
            if begin + length > end:
                break
            at = begin + length
            # A copy of its own: outputs are views of it.
            self._take(kind, number, received[begin:at])
        if received is self._rest:
            del received[:at]
        elif at < end:
            self._rest += received[at:end]

    def _keep_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors.extend(array("i", data[: len(data) - len(data) % 4]))


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)

"""The reader of the server's frames.

There is no thread for reading. A thread that waits for something reads: the main thread while it has nothing to
execute, a thread that waits for a reply, an asyncio loop when the socket is readable. One at a time holds the reading
side and hands out the frames; the others sleep until their own frame has come or the reading side is free. So a request
reaches the executing thread without a switch between threads.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import traceback
from array import array
from collections import deque
from typing import Any, Callable

from .errors import ServerGoneError
from .frames import FRAME
from .memory_limit import memory_limit

HEAD_BYTES = FRAME.size
BUFFER_BYTES = 1 << 18
# More room than a frame needs: the system drops descriptors that do not fit.
_DESCRIPTORS = socket.CMSG_SPACE(16 * struct.calcsize("i"))
_BASE_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_NO_WAIT = _BASE_FLAGS | socket.MSG_DONTWAIT

FrameHandler = Callable[[int, int, bytearray], None]


class Waiter:
    """Lets one thread sleep until another wakes it; a wake before the sleep counts as well."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def sleep(self) -> None:
        """Sleep until ``wake``; return at once when that came before."""
        self._lock.acquire()

    def wake(self) -> None:
        """End the sleep. May be called by any thread, any number of times."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:
                return  # Another thread was quicker.


class Channel:
    """Reads frames and calls ``handle(kind, number, payload)`` for each, in the thread that happens to read."""

    def __init__(self, connection: socket.socket, handle: FrameHandler) -> None:
        self._connection = connection
        self._handle = handle
        self._reading = threading.Lock()
        self._sleepers: set[Waiter] = set()
        self._descriptors: deque[int] = deque()
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        # A frame that is larger than the buffer: its head, its payload, and the bytes of that which have arrived.
        self._large: bytearray | None = None
        self._large_filled = 0
        self._large_kind = self._large_number = 0
        self._until_readable = _waiting_on(connection)

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._connection.fileno()

    def take_descriptor(self) -> int:
        """The descriptor that came with the frame at hand; it is the caller's to close."""
        return self._descriptors.popleft()

    def close(self) -> None:
        """Close the socket, and release the buffer and the handler unless a thread reads."""
        self._connection.close()
        if self._reading.acquire(False):
            # It is its owner's, which refers to this channel.
            self._handle = _ignore
            self._view.release()
            self._buffer, self._view = bytearray(), memoryview(b"")
            self._reading.release()

    def wait_until(self, ready: Callable[[], Any], waiter: Waiter) -> None:
        """Read, or sleep while another thread reads, until ``ready()`` is true.

        The thread that makes it true wakes the waiter.

        Raises:
            ServerGoneError: the server closed the connection.
        """
        while not ready():
            if self._reading.acquire(False):
                try:
                    while not ready():
                        # Poll first: a worker with one batch at a time has most likely nothing to read yet.
                        self._until_readable()
                        self._read(_NO_WAIT)
                finally:
                    self._reading.release()
            else:
                self._sleepers.add(waiter)
                # Unless the reader left in between: it may not have seen this sleeper, and would wake nobody.
                if self._reading.locked():
                    waiter.sleep()
                self._sleepers.discard(waiter)
        # This thread stops reading, so one of the sleepers has to go on.
        if self._sleepers:
            self._call_next_reader()

    def poll(self) -> bool:
        """Read what has arrived without waiting. False when another thread reads at the moment.

        Raises:
            ServerGoneError: the server closed the connection.
        """
        # Also when a handler in this thread polls: the lock is not re-entrant, so no frame is handled within another.
        if not self._reading.acquire(False):
            return False
        try:
            while self._read(_NO_WAIT):
                pass
        finally:
            self._reading.release()
        if self._sleepers:
            self._call_next_reader()
        return True

    def _call_next_reader(self) -> None:
        # A copy: sleepers come and go in other threads.
        for waiter in list(self._sleepers)[:1]:
            waiter.wake()

    def _read(self, flags: int) -> bool:
        """Receive once and hand out the frames that are complete; False when nothing was there."""
        large = self._large
        if large is not None:
            space = memoryview(large)[self._large_filled :]
        else:
            space = self._view[self._filled :] if self._filled else self._view
        try:
            size, ancillary, _, _ = self._connection.recvmsg_into([space], _DESCRIPTORS, flags)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ServerGoneError(f"The connection to the server failed: {error}") from error
        if ancillary:
            self._keep_descriptors(ancillary)
        if not size:
            raise ServerGoneError("The server closed the connection")
        if large is not None:
            self._received_large(large, size)
        else:
            self._received(self._filled + size)
        return True

    def _received(self, end: int) -> None:
        buffer, start, handle = self._buffer, 0, self._handle
        while end - start >= HEAD_BYTES:
            kind, size, number = FRAME.unpack_from(buffer, start)
            body = start + HEAD_BYTES
            if body + size > end:
                if body + size > start + BUFFER_BYTES:
                    self._begin_large(kind, number, size, start, end)
                    return
                # The rest of it still fits into the buffer.
                break
            start = body + size
            try:
                # The slice is a copy: tensors refer to it while the buffer is filled again.
                handle(kind, number, buffer[body:start])
            except ServerGoneError:
                raise
            except BaseException as error:
                raise self._given_up(error) from error
        self._filled = end - start
        if self._filled and start:
            buffer[: self._filled] = buffer[start:end]

    def _begin_large(self, kind: int, number: int, size: int, start: int, end: int) -> None:
        try:
            large = bytearray(size)
        except MemoryError as error:
            # Nothing behind this frame can be read, and an exception might reach a model that catches it and goes on.
            os.write(2, f"no memory for {size} bytes that the server sent{memory_limit.hint(error)}\n".encode())
            os._exit(1)
        first = start + HEAD_BYTES
        self._large_filled = end - first
        # The rest is received straight into this memory, which the tensors of the frame then share.
        large[: self._large_filled] = self._view[first:end]
        self._large, self._large_kind, self._large_number = large, kind, number
        self._filled = 0

    def _received_large(self, large: bytearray, size: int) -> None:
        self._large_filled += size
        if self._large_filled == len(large):
            self._large = None
            try:
                self._handle(self._large_kind, self._large_number, large)
            except ServerGoneError:
                raise
            except BaseException as error:
                raise self._given_up(error) from error

    def _given_up(self, error: BaseException) -> ServerGoneError:
        """The error for the reading thread after a frame that could not be handled: later frames would make no sense.

        The connection is shut down for all threads, as this one may be a model's, which catches the error and goes on.
        """
        traceback.print_exc()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        return ServerGoneError(f"A frame of the server could not be taken: {type(error).__name__}: {error}")

    def _keep_descriptors(self, ancillary: list[Any]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                for descriptor in numbers:
                    # Without MSG_CMSG_CLOEXEC a program that the model starts would inherit them.
                    os.set_inheritable(descriptor, False)
                    self._descriptors.append(descriptor)


def _ignore(kind: int, number: int, payload: bytearray) -> None:
    """Stands in for the handler of a channel that is closed."""


def _waiting_on(connection: socket.socket) -> Callable[[], object]:
    """A function that waits until the socket is readable.

    Not ``recv``: a thread that sleeps in it is also woken, for nothing, when the other side reads what was sent.
    """
    if not hasattr(select, "poll"):
        return lambda: select.select([connection], [], [])
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return waiting.poll

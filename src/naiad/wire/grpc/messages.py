"""Length-prefixed messages: one byte for "compressed", four for the length, then the message.

Source: gRPC's "gRPC over HTTP/2", section Length-Prefixed-Message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from naiad.errors import InternalError
from naiad.wire.grpc.compression import MessageTooLargeError
from naiad.wire.http1.body import SizedBody
from naiad.worker.ipc.buffer_pool import BufferPool

PREFIX_BYTES: Final = 5
SMALL_MESSAGE_BYTES: Final = 1 << 14
"""Smaller messages are received without a check for room."""
prefix = struct.Struct(">BI")


class BadPrefixError(InternalError):
    """The data do not begin with the prefix of a message."""


class MessageReader:
    """Cuts the data of one call into messages, one at a time.

    Args:
        pool_for: returns the pool with the memory for a message, by its size in bytes and its beginning.
        limit: the largest message, in bytes.
        check_room: called with the size of a message in bytes before memory is taken for it; its errors propagate.

    A message that arrives in several pieces gets memory of its own, into which the rest may be received directly. The
    end of the message is aligned there, since the last tensor of an inference request ends with the message.

    Attributes:
        compressed: the flag of the last message that ``take`` returned.
        waiting_bytes: the bytes received so far of an incomplete message.
    """

    __slots__ = ("_body", "_check_room", "_limit", "_pool_for", "_prefix", "compressed", "waiting_bytes")

    def __init__(
        self,
        pool_for: Callable[[int, memoryview], BufferPool],
        limit: int,
        check_room: Callable[[int], None] | None = None,
    ) -> None:
        self._pool_for = pool_for
        self._check_room = check_room
        self._limit = limit
        self._prefix = bytearray()
        self._body: SizedBody | None = None
        self.compressed = False
        self.waiting_bytes = 0

    @property
    def is_within_message(self) -> bool:
        """A message has begun and is not whole."""
        return bool(self._prefix)

    def feed(self, data: memoryview) -> tuple[int, bytearray | memoryview | None]:
        """Consume ``data`` up to the end of one message. Returns the number of bytes used, and the message once
        complete.

        Raises:
            BadPrefixError: the data do not begin with the prefix of a message.
            MessageTooLargeError: the message is longer than the limit.
            MemoryError: its memory cannot be allocated.
            NaiadError: ``check_room`` refuses it.
        """
        if self._body is not None:
            return self._fill(self._body, data)
        used = min(PREFIX_BYTES - len(self._prefix), len(data))
        self._prefix += data[:used]
        if len(self._prefix) < PREFIX_BYTES:
            return used, None
        flag, length = prefix.unpack(self._prefix)
        if flag > 1:
            raise BadPrefixError(f"a request message begins with the byte {flag}, expected 0 or 1")
        self.compressed = bool(flag)
        # Refused before memory is taken: so far the length is nothing but what the peer says.
        if length > self._limit:
            raise MessageTooLargeError(
                f"the request message has {length} bytes, the server takes {self._limit}; see --grpc-max-input-size"
            )
        rest = data[used : used + length]
        if len(rest) == length:
            self._prefix.clear()
            # A copy, since the receive buffer is used again at once.
            return used + length, bytearray(rest)
        if self._check_room is not None and length > SMALL_MESSAGE_BYTES:
            self._check_room(length)
        self._body = SizedBody(self._pool_for(length, rest), length, rest, length)
        self.waiting_bytes = len(rest)
        return used + len(rest), None

    def append(self, buffer: bytearray, start: int, end: int) -> bool:
        """Fast path for the middle of a long message: True when ``buffer[start:end]`` was consumed."""
        body = self._body
        size = end - start
        # The end of a message, or of its memory so far, takes the slower methods.
        if body is None or len(body.target) <= size:
            return False
        body.target[:size] = memoryview(buffer)[start:end]
        body.advance(size)
        self.waiting_bytes += size
        return True

    def _fill(self, body: SizedBody, data: memoryview) -> tuple[int, memoryview | None]:
        used = 0
        while used < len(data):
            size = min(len(body.target), len(data) - used)
            body.target[:size] = data[used : used + size]
            used += size
            # Without a message ``target`` is new: the memory for the rest is taken only now.
            if message := self.advance(size):
                return used, message
        return used, None

    def target(self) -> memoryview | None:
        """The memory for the next bytes of the present message; None when the message has no memory of its own."""
        return None if self._body is None else self._body.target

    def advance(self, size: int) -> memoryview | None:
        """Count ``size`` bytes received into ``target``; returns the message once it is complete.

        Raises:
            MemoryError: memory for the rest cannot be allocated.
        """
        body = self._body
        if body is None:
            return None
        self.waiting_bytes += size
        if not body.advance(size):
            return None
        self._body = None
        self._prefix.clear()
        self.waiting_bytes = 0
        return body.memory

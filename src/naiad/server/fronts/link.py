"""The connection between a front-end process and the engine's process: messages both ways, many in one write.

Both ends are the same program and the same interpreter, so the messages of a turn are marshalled as they are. Large
bytes lie in shared memory that both map; the segments and their pool are those of the workers.
"""

from __future__ import annotations

import asyncio
import logging
import marshal
import os
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np

from naiad.eventloop.end_of_turn import end_of_turn_queue
from naiad.execution.worker.channel import WorkerChannel
from naiad.server.fronts.messages import DROP, DROP_ARENAS, RELEASE, WITH_ROWS
from naiad.worker.ipc.frames import FRAME
from naiad.worker.ipc.lent_memory import LentMemory
from naiad.worker.ipc.lent_tensors import LentTensors, MemoryFinder
from naiad.worker.ipc.segments import KEEP_FREE_S, SegmentPool, ServerSegments

logger = logging.getLogger("naiad")

TURN: Final = 1
SEGMENT: Final = 2
DESCRIPTOR: Final = 3
ARENA: Final = 4
_KINDS: Final = frozenset((TURN, SEGMENT, DESCRIPTOR, ARENA))
_SIZE: Final = struct.Struct("<Q")
_ARENA: Final = struct.Struct("<QQ")
SEGMENT_BYTES: Final = 1 << 16
"""Bytes from which on a tensor or a body travels in shared memory."""

Message = tuple[Any, ...]
Place = bytes | tuple[int, int] | tuple[int, int, int]
"""Bytes, or a segment's number and how many bytes lie in it; or number, size and offset of what was lent."""
Raw = bytes | bytearray | memoryview
Handlers = dict[int, Callable[..., object]]


class Link:
    """One end of the connection. Used on the event loop only. Whoever makes it calls ``close``.

    Args:
        name: of the other side, for the log.
        connection: non-blocking; closed with the link.
        handlers: what takes the messages of each kind; called with what follows the kind.
        lost: called once when the other side is gone.

    Attributes:
        on_descriptor: called with each descriptor that the other side gives, which it closes.
        on_arena: called with each arena of the other side, and the number of its model; by default it is only read.
    """

    def __init__(
        self,
        name: str,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        handlers: Handlers,
        lost: Callable[[], object],
    ) -> None:
        self._name = name
        self._connection = connection
        self._loop = loop
        self._end_of_turn = end_of_turn_queue(loop)
        self._handlers = {
            **handlers,
            RELEASE: self._take_release,
            DROP: self._take_drop,
            DROP_ARENAS: self._take_drop_arenas,
        }
        self._on_lost = lost
        self._due: list[Message] = []
        self._groups: dict[Message, list[Message]] = {}
        self._arrived: list[Message] = []
        self._own = SegmentPool()
        self._theirs = ServerSegments(self._released)
        self._lent = LentTensors()
        self._arenas: dict[int, LentMemory] = {}
        self._trim_timer: asyncio.TimerHandle | None = None
        self.is_open = True
        self.on_descriptor: Callable[[int], object] = os.close
        self.on_arena: Callable[[LentMemory, int], object] = _only_read
        self._channel = WorkerChannel(name, connection, loop, self._take_frame, self._lost, _KINDS)
        self._channel.on_read = self._take_arrived

    # Sending

    def post(self, message: Message) -> None:
        """Send a message with all others of this turn of the loop. Nothing happens once the other side is gone."""
        due = self._due
        if not due:
            self._end_of_turn.call(self._loop, self._flush)
        due.append(message)

    def post_row(self, head: Message, row: Message) -> None:
        """Send ``row`` in the message that begins with ``head``, with all other rows of this turn that go with it.

        Most requests of a turn are alike, so what they share is sent and looked up once.
        """
        rows = self._groups.get(head)
        if rows is None:
            rows = self._groups[head] = [row]
            self.post((*head, rows))
        else:
            rows.append(row)

    def give(self, descriptor: int) -> None:
        """Give the other side a descriptor, before any message of this turn. It is closed here."""
        self._channel.send(FRAME.pack(DESCRIPTOR, 0, 0), descriptor)

    def place(self, data: Raw) -> Place:
        """Where the other side finds ``data``; to be sent in the next message."""
        if len(data) < SEGMENT_BYTES:
            return data if type(data) is bytes else bytes(data)
        return self._in_segment([data], len(data))

    def place_parts(self, parts: Sequence[Any], size: int) -> Place:
        """The same for ``size`` bytes in several parts."""
        if size < SEGMENT_BYTES:
            return b"".join(parts)
        return self._in_segment(parts, size)

    def place_array(self, array: np.ndarray[Any, Any], finder: MemoryFinder | None = None, model: int = 0) -> Place:
        """The same for the elements of an array, which need not lie one behind the other.

        ``finder`` finds those that stay where they are; ``model``: the number of the model that they are for.
        """
        size = array.nbytes
        if size < SEGMENT_BYTES:
            return array.tobytes()
        whole = np.ascontiguousarray(array)
        lent = None if finder is None else self._lend(_flat(whole), finder, model)
        return self._in_segment([whole], size) if lent is None else lent

    def _lend(self, data: np.ndarray[Any, Any], finder: MemoryFinder, model: int) -> Place | None:
        if not self.is_open:
            return None
        lent = self._lent.lend(data, finder, partial(self._introduce, model))
        return None if lent is None else (lent[0], data.size, lent[1])

    def _introduce(self, model: int, number: int, descriptor: int, size: int) -> None:
        self._trim_later()
        self._channel.send(FRAME.pack(ARENA, _ARENA.size, number) + _ARENA.pack(size, model), descriptor)

    def drop_arenas(self) -> None:
        """Tell the other side of arenas, and of segments of workers, that were closed."""
        if numbers := self._lent.forget_closed():
            self.post((DROP_ARENAS, numbers))

    def _in_segment(self, parts: Sequence[Any], size: int) -> Place:
        if not self.is_open:
            return b""
        segment = self._own.take(size)
        if segment.descriptor >= 0:
            descriptor, segment.descriptor = segment.descriptor, -1
            self._channel.send(FRAME.pack(SEGMENT, _SIZE.size, segment.number) + _SIZE.pack(segment.size), descriptor)
        at = 0
        for part in parts:
            data = _flat(part)
            segment.bytes[at : at + len(data)] = data
            at += len(data)
        self._trim_later()
        return segment.number, size

    def _trim_later(self) -> None:
        if self._trim_timer is None:
            self._trim_timer = self._loop.call_later(KEEP_FREE_S, self._trim)

    def _trim(self) -> None:
        self._trim_timer = None
        dropped = self._own.trim()
        if dropped:
            self.post((DROP, dropped))
        self.drop_arenas()
        if self._own.is_used or self._lent.has_memories:
            self._trim_later()

    def _flush(self) -> None:
        messages, self._due = self._due, []
        self._groups.clear()
        data = marshal.dumps(messages)
        self._channel.send(FRAME.pack(TURN, len(data), 0) + data)

    # Receiving

    def open(self, place: Place) -> bytes | memoryview:
        """The bytes at a place of the other side. A segment is free again when the last view of it is gone."""
        if type(place) is bytes:
            return place
        number, size, *offset = place
        return self._theirs.open(int(number), int(offset[0]) if offset else 0, int(size)).data

    def _take_frame(self, kind: int, number: int, payload: bytearray) -> None:
        if kind == SEGMENT:
            self._theirs.add(number, self._channel.take_descriptor(), _SIZE.unpack(payload)[0])
            return
        if kind == ARENA:
            self._take_arena(number, *_ARENA.unpack(payload))
            return
        if kind == DESCRIPTOR:
            self.on_descriptor(self._channel.take_descriptor())
            return
        self._arrived += marshal.loads(payload)

    def _take_arrived(self) -> None:
        """Pass on all messages that one reading gave."""
        handlers = self._handlers
        messages, self._arrived = self._arrived, []
        for kind, *arguments in _joined(messages):
            if not self.is_open:
                return
            try:
                handlers[kind](*arguments)
            except Exception:
                # The other messages belong to other requests.
                logger.exception("%s sent a message that could not be handled", self._name)

    def _take_arena(self, number: int, size: int, model: int) -> None:
        memory = self._arenas[number] = LentMemory(self._channel.take_descriptor(), size)
        if memory.bytes is not None:
            self._theirs.add_arena(number, memory.bytes)
        self.on_arena(memory, model)

    def _take_drop_arenas(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._theirs.drop_arena(number)
            self._arenas.pop(number).close()

    def _take_release(self, numbers: Sequence[int]) -> None:
        self._own.release(numbers)
        self._lent.release(numbers)

    def _take_drop(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._theirs.drop(number)

    def _released(self, number: int) -> None:
        # Called in whichever thread drops the last view.
        if self.is_open:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.post, (RELEASE, (number,)))

    # The end

    def _lost(self) -> None:
        if self.is_open:
            self.close()
            self._on_lost()

    def close(self) -> None:
        """Close the connection. May be called twice."""
        if not self.is_open:
            return
        self.is_open = False
        if self._trim_timer is not None:
            self._trim_timer.cancel()
        self._channel.close()
        self._connection.close()
        self._own.close()
        self._theirs.close()
        # Nobody uses any more what was lent.
        self._lent = LentTensors()
        for memory in self._arenas.values():
            memory.close()
        self._arenas.clear()


def _only_read(memory: LentMemory, model: int) -> None:
    memory.close_descriptor()


def _joined(messages: list[Message]) -> list[Message]:
    """Messages with rows that are alike and follow each other as one, as ``post_row`` sends those of a turn.

    A sender that has the time sends few rows at once, and a receiver that has none gets many frames in one reading.
    """
    if len(messages) < 2:
        return messages
    found = messages[:1]
    for message in messages[1:]:
        last = found[-1]
        if message[0] in WITH_ROWS and message[:-1] == last[:-1]:
            last[-1].extend(message[-1])
        else:
            found.append(message)
    return found


def _flat(part: Any) -> np.ndarray[Any, Any]:
    if isinstance(part, np.ndarray):
        flat: np.ndarray[Any, Any] = part.reshape(-1).view(np.uint8)
        return flat
    return np.frombuffer(part, np.uint8)

"""The control connection between the main process and a process that it started: ends of links come over it.

The main process makes the pair of sockets of each link, and gives the ends to the engine and a front end.
So nothing has a name that others could open, and nothing is left behind however a process ends.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from naiad.options import ServerOptions

LINK: Final = b"L"
"""With it comes the end of a new link."""
LISTENING: Final = b"P"
"""A front-end process listens on its ports."""
READY: Final = b"R"
"""The process handles its signals."""
ENGINE: Final = "engine"
FRONT: Final = "front"
_LENGTH: Final = struct.Struct("<Q")

Role = tuple[str, int, "ServerOptions"]
"""What a process is, its number among those of its kind, and the options of the server."""


def send_role(connection: socket.socket, role: Role) -> None:
    """Tell a process that was just started what it is."""
    data = pickle.dumps(role)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive_role(connection: socket.socket) -> Role:
    """Wait for the main process's first message.

    Raises:
        EOFError: the main process has ended.
    """
    size = _LENGTH.unpack(_receive(connection, _LENGTH.size))[0]
    role: Role = pickle.loads(_receive(connection, size))
    return role


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("the main process has ended")
        data += more
    return data


def make_link(engine: socket.socket, front: socket.socket) -> None:
    """Connect the engine's process with a front-end process; each has a control connection.

    Raises:
        OSError: one of the processes is gone.
    """
    ends = socket.socketpair()
    try:
        for control, end in zip((engine, front), ends, strict=True):
            socket.send_fds(control, [LINK], [end.fileno()])
    finally:
        for end in ends:
            end.close()


class Control:
    """The control connection in a process that the main process started. ``close`` it in the end.

    Args:
        on_link: called with the end of each new link, non-blocking.
        on_orphaned: called when the main process has ended.
    """

    def __init__(
        self, connection: socket.socket, on_link: Callable[[socket.socket], object], on_orphaned: Callable[[], object]
    ) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._on_link = on_link
        self._on_orphaned = on_orphaned
        self._loop.add_reader(connection.fileno(), self._read)

    def send(self, message: bytes) -> None:
        """Send one byte to the main process. Nothing happens when it is gone: reading finds that out."""
        try:
            self._connection.send(message)
        except OSError:
            return

    def close(self) -> None:
        """Stop reading; the socket belongs to whoever made it."""
        self._loop.remove_reader(self._connection.fileno())

    def _read(self) -> None:
        try:
            # One byte, as long as a message is, so that a descriptor belongs to the byte that it came with.
            data, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self.close()
            self._on_orphaned()
        for descriptor in descriptors:
            end = socket.socket(fileno=descriptor)
            end.setblocking(False)
            self._on_link(end)

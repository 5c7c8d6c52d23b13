"""A non-blocking client connection: connecting, TLS, data that do not fit at once, and loss."""

from __future__ import annotations

import select
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from naiad.perf.target.address import Address, cause_of
from naiad.perf.target.protocol import CANNOT_CONNECT, CONNECTION_LOST, Place, Poller, ResponseListener

RECEIVE_BYTES: Final = 1 << 16
_MAX_LOSSES: Final = 5
"""After so many connections in a row that are lost before any response the server counts as not reached."""
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SocketChannel:
    """The base of channels over TCP. Connects again when the connection is lost.

    Attributes:
        is_open: connected, and ready for requests.
    """

    places: Sequence[Place] = ()

    def __init__(self, address: Address, poller: Poller, listener: ResponseListener) -> None:
        self._address = address
        self._poller = poller
        self._listener = listener
        self._times = listener.times
        self._socket: Any = None
        self._descriptor = -1
        self._unsent: deque[memoryview] = deque()
        self._is_shaking_hands = False
        self._losses = 0
        self.is_open = False

    def fileno(self) -> int:
        """The descriptor of the socket; -1 when there is none."""
        return self._descriptor

    @property
    def is_reached(self) -> bool:
        """Whether it is connected, and no connection was lost since the last response."""
        return self.is_open and not self._losses

    # Connecting

    def connect(self) -> None:
        """Begin to connect, without waiting."""
        self._drop()
        try:
            fresh = socket.socket(self._address.family, socket.SOCK_STREAM)
        except OSError as error:
            self._poller.fail(f"cannot open another connection to {self._address.authority}: {cause_of(error)}")
            return
        fresh.setblocking(False)
        if fresh.family != getattr(socket, "AF_UNIX", None):
            fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = fresh
        self._descriptor = fresh.fileno()
        fresh.connect_ex(self._address.socket_address)
        self._poller.add(self, writes=True)

    def handle(self, mask: int) -> None:
        """Take an event beside plain readability."""
        if self.is_open:
            if mask & select.EPOLLOUT:
                self._send_unsent()
            if self.is_open and mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self.receive()
        elif self._is_shaking_hands:
            self._shake_hands()
        elif self._socket is not None:
            self._connected()

    def _connected(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._cannot_connect(OSError(code, ""))
        elif self._address.tls is None:
            self._opened()
        else:
            self._socket = self._address.tls.wrap_socket(
                self._socket, server_hostname=self._address.host, do_handshake_on_connect=False
            )
            self._is_shaking_hands = True
            self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._poller.watch_writes(self, writes=False)
        except ssl.SSLWantWriteError:
            self._poller.watch_writes(self, writes=True)
        except OSError as error:
            self._cannot_connect(error)
        else:
            self._is_shaking_hands = False
            self._opened()

    def _cannot_connect(self, error: OSError) -> None:
        cause = cause_of(error)
        failed = self._give_up()
        self._listener.unreached(self, f"cannot connect to {self._address.authority}: {cause}")
        for place, now_ns in failed:
            self._listener.completed(place, now_ns, (CANNOT_CONNECT, cause))

    def _opened(self) -> None:
        self.is_open = True
        self._poller.watch_writes(self, writes=bool(self._unsent))
        self._greet()

    def _greet(self) -> None:
        """Send what the protocol begins with."""

    # Sending and receiving

    def _write(self, data: bytes) -> bool:
        """Send, and keep what does not fit at once; whether all was sent.

        Raises:
            OSError: the connection is lost.
        """
        if self._unsent or not self.is_open:
            self._unsent.append(memoryview(data))
            return False
        try:
            sent = self._socket.send(data)
        except _WOULD_BLOCK:
            sent = 0
        if sent == len(data):
            return True
        self._unsent.append(memoryview(data)[sent:])
        self._poller.watch_writes(self, writes=True)
        return False

    def _send_unsent(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                sent = self._socket.send(unsent[0])
                if sent < len(unsent[0]):
                    unsent[0] = unsent[0][sent:]
                else:
                    unsent.popleft()
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self._lost(cause_of(error))
            return
        self._poller.watch_writes(self, writes=False)
        self._all_sent()

    def _all_sent(self) -> None:
        """What did not fit at once is sent."""

    def _read(self) -> bytes | None:
        """What has arrived; empty at the end of the connection, None when there is nothing yet.

        Raises:
            OSError: the connection is lost.
        """
        try:
            data: bytes = self._socket.recv(RECEIVE_BYTES)
            if self._address.tls is not None:
                # Data that TLS has taken from the socket already cause no event.
                while data and self._socket.pending():
                    data += self._socket.recv(RECEIVE_BYTES)
        except _WOULD_BLOCK:
            return None
        return data

    def receive(self) -> None:
        """Take what has arrived."""
        raise NotImplementedError

    # The end

    def _lost(self, cause: str) -> None:
        """Connect again, unless the server does nothing but close connections, and tell the requests in flight."""
        in_flight = self._take_in_flight()
        self._unsent.clear()
        self._losses += bool(in_flight) or not self.is_open
        if self._losses >= _MAX_LOSSES:
            in_flight += self._give_up()
            text = f"{self._address.authority} closes every connection before it responds: {cause}"
            self._listener.unreached(self, text)
        else:
            self.connect()
        for place, now_ns in in_flight:
            self._listener.completed(place, now_ns, (CONNECTION_LOST, cause))

    def _give_up(self) -> list[tuple[Place, int]]:
        """Close the connection; gives the places whose requests have failed with it, as ``_take_in_flight``."""
        failed = self._take_in_flight() + self._take_waiting()
        self._unsent.clear()
        self._drop()
        return failed

    def _take_waiting(self) -> list[tuple[Place, int]]:
        """The places whose requests wait for a connection, where they are kept apart; they are free afterwards."""
        return []

    def _take_in_flight(self) -> list[tuple[Place, int]]:
        """The places whose requests are lost, with the present time; they are free afterwards."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send what ``start`` has left for the end of a turn."""

    def close(self) -> None:
        """Close the connection, whatever is in flight."""
        self._drop()
        self._unsent.clear()

    def _drop(self) -> None:
        self.is_open = self._is_shaking_hands = False
        if self._socket is not None:
            self._poller.remove(self._descriptor)
            self._socket.close()
            self._socket = None
            self._descriptor = -1

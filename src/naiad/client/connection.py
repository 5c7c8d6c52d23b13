"""Connections of a client whose calls wait."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from typing import Final

from naiad.client.address import ServerAddress
from naiad.client.deadline import Deadline, deadline_in
from naiad.client.errors import ConnectionFailedError
from naiad.client.fork import watch_forks
from naiad.client.protocol import ClientExchange, Parts, ServerResponse

# Most responses are small, and room for large ones costs more than the rest of a read.
_FIRST_BYTES: Final = 1 << 15
_MORE_BYTES: Final = 1 << 18


class BlockingConnection:
    """A connection that carries one request at a time.

    Attributes:
        is_used: whether it has carried a request before: the server may have closed it since.
        is_open: whether it can carry another one.
    """

    def __init__(self, address: ServerAddress, exchange: ClientExchange, deadline: Deadline) -> None:
        """Connect.

        Args:
            exchange: speaks the protocol.
            deadline: until when the connection has to be there.

        Raises:
            ConnectionFailedError: the server cannot be reached.
            DeadlineExceededError: not in time.
        """
        self._address = address
        self._exchange = exchange
        self._limit_s = 0.0
        self.is_used = False
        self.is_open = True
        try:
            plain = socket.create_connection((address.host, address.port), max(deadline.left_s, 1e-3))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = address.tls
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=address.host)
        except TimeoutError:
            raise address.too_late(deadline.timeout_s) from None
        except OSError as error:
            raise address.unreachable(error, was_sent=False) from None

    def exchange(self, request: Parts, deadline: Deadline) -> ServerResponse:
        """Send a request and wait for its response; arguments and errors as for the constructor."""
        exchange = self._exchange
        try:
            exchange.begin(request)
            self._send(exchange.outgoing(), deadline)
            response, size = None, _FIRST_BYTES
            while response is None:
                self._limit(deadline)
                data = self._socket.recv(size)
                size = _MORE_BYTES
                response = exchange.feed(data) if data else self._end()
                if parts := exchange.outgoing():
                    self._send(parts, deadline)
        except TimeoutError:
            self.close()
            raise self._address.too_late(deadline.timeout_s) from None
        except OSError as error:
            self.close()
            raise self._unreachable(error) from None
        except BaseException:
            # Whatever interrupts a wait leaves half a response behind.
            self.close()
            raise
        self.is_used = True
        if response.closes:
            self.close()
        return response

    def stream(self, request: Parts, timeout_s: float) -> Generator[bytes, None, None]:
        """Send a request and yield the messages of its response.

        Args:
            timeout_s: how long each message may take.

        Raises:
            ResponseError: the call ended with an error.
            ConnectionFailedError: the connection ended before it.
            DeadlineExceededError: a message took too long.
        """
        exchange = self._exchange
        response: ServerResponse | None = None
        try:
            deadline = deadline_in(timeout_s)
            exchange.begin(request)
            self._send(exchange.outgoing(), deadline)
            while response is None:
                self._limit(deadline)
                data = self._socket.recv(_MORE_BYTES)
                response = exchange.feed(data) if data else self._end()
                if parts := exchange.outgoing():
                    self._send(parts, deadline)
                for message in exchange.take_messages():
                    yield message
                    deadline = deadline_in(timeout_s)
        except TimeoutError:
            raise self._address.too_late(timeout_s) from None
        except OSError as error:
            raise self._unreachable(error) from None
        finally:
            # A caller who reads no further leaves the rest of the responses behind.
            if response is None or response.closes:
                self.close()
        self.is_used = True
        response.checked()

    def _send(self, parts: Parts, deadline: Deadline) -> None:
        self._limit(deadline)
        for part in parts:
            self._socket.sendall(part)

    def _limit(self, deadline: Deadline) -> None:
        """Let the next wait end at the deadline, or a hundredth later: a limit that is right by then costs no call."""
        left_s = deadline.left_s
        if not 0.99 * self._limit_s <= left_s <= self._limit_s:
            self._limit_s = max(left_s, 1e-6)
            self._socket.settimeout(self._limit_s)

    def _end(self) -> ServerResponse:
        response = self._exchange.end()
        if response is None:
            raise self._unreachable(None)
        self.close()
        return response

    def _unreachable(self, error: OSError | None) -> ConnectionFailedError:
        return self._address.unreachable(error, was_sent=True, is_new=not self.is_used)

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._socket.close()


class IdleConnections:
    """The open connections of a client that carry no request. Any thread may use it; a forked process gets none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[BlockingConnection] = []
        watch_forks(self)

    def take(self) -> BlockingConnection | None:
        """The connection that was used last."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def keep(self, connection: BlockingConnection, most: int | None = None) -> None:
        """Keep a connection for a later request, if it is open; close it if ``most`` are kept already."""
        with self._lock:
            is_kept = connection.is_open and (most is None or len(self._idle) < most)
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def forked(self, is_new_process: bool) -> None:
        """The bytes of two processes would mix on one connection."""
        if is_new_process:
            # Another thread of the parent may have held it.
            self._lock = threading.Lock()
            self.close()

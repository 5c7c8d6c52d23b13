"""The sockets of a front end: opening them, watching the connections' times and closing in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol

from naiad.clock import SystemClock
from naiad.errors import OptionError
from naiad.frontends.net.tls_accept import TlsAcceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from ssl import SSLContext

    from naiad.clock import Clock

BACKLOG: Final = 2048
# Connections have no timers: one sweep of the listener counts the seconds of all of them.
SWEEP_SECONDS: Final = 1.0
_NS_PER_S: Final = 1_000_000_000
_SERVICES: Final = {"--http-port": "HTTP", "--grpc-port": "GRPC", "--metrics-port": "Metrics"}


class ServedConnection(Protocol):
    """A connection, as its listener uses it.

    Attributes:
        quiet: seconds without an event; the listener's sweep counts it up.
        quiet_limit_s: the quiet seconds after which ``check_time`` is called.
    """

    quiet: int
    quiet_limit_s: int

    def check_time(self) -> None:
        """Nothing happened for ``quiet_limit_s`` seconds."""

    def drain(self) -> None:
        """Take nothing new and close after the last response."""

    def abort(self) -> None:
        """Drop the connection and what it has not sent."""


class Service(Protocol):
    """The state that the connections of one listener share, as far as the listener uses it.

    Attributes:
        shared_buffer: the loop reads and delivers in one step, so connections may receive into one buffer.
        gathers_writes: the loop's ``writelines`` takes part in back-pressure.
        draining: new connections are turned away.
        on_empty: called when the last connection is gone.
    """

    shared_buffer: bool
    gathers_writes: bool
    draining: bool
    on_empty: Callable[[], None] | None

    @property
    def connections(self) -> Collection[Any]:
        """Each a ``ServedConnection``; closing connections included."""

    def age(self, seconds: int) -> None:
        """Note that time has passed."""

    def forget_heads(self) -> None:
        """Forget the handlers of known request heads."""


class Acceptor(Protocol):
    """The acceptor of connections on one socket: ``asyncio.Server`` or ``TlsAcceptor``."""

    def close(self) -> None:
        """Close the listening socket; open connections go on."""


class Listener:
    """Accepts connections on one address and port.

    ``connect`` makes the protocol object of a new connection, which adds itself to ``service.connections``. ``option``
    is the command-line option that set the port; error texts name it. With ``ssl`` every connection begins with a TLS
    handshake and is counted once that is done. ``port`` None opens no socket: then the connections come from elsewhere
    and this only watches and closes them. All methods belong to the event loop's thread. Whoever starts a listener
    calls ``drain`` or ``abort`` in the end.
    """

    def __init__(
        self,
        service: Service,
        connect: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int | None,
        *,
        option: str,
        reuse_port: bool = False,
        clock: Clock | None = None,
        ssl: SSLContext | None = None,
    ) -> None:
        self._service = service
        self._connect = connect
        self._host = host
        self._configured_port = port
        self._port = port or 0
        self._option = option
        self._reuse_port = reuse_port
        self._clock = clock or SystemClock()
        self._ssl = ssl
        self._acceptors: list[Acceptor] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._swept_s = 0

    @property
    def port(self) -> int:
        """The port that is listened on, also when 0 was asked for."""
        return self._port

    @property
    def address(self) -> str:
        """``host:port`` as it is shown to people; IPv6 hosts in brackets."""
        return shown_address(self._host, self._port)

    @property
    def connection_count(self) -> int:
        """The number of open connections, closing ones included."""
        return len(self._service.connections)

    async def start(self) -> None:
        """Open the sockets and accept connections.

        Raises:
            OptionError: the address is unknown or the port cannot be used; nothing stays open.
        """
        loop = asyncio.get_running_loop()
        # Before a socket is open: a connection asks for its buffer as soon as it is made.
        self._service.shared_buffer = _reads_in_one_step(loop)
        self._service.gathers_writes = _is_uvloop(loop)
        for opened in await self._open_sockets(loop):
            self._acceptors.append(await self._accept_on(opened, loop))
        self._swept_s = self._clock.now_ns() // _NS_PER_S
        self._sweep_timer = loop.call_later(SWEEP_SECONDS, self._sweep_again)

    def use_tls(self, ssl: SSLContext) -> None:
        """Begin new connections with these settings; only where connections are encrypted already."""
        self._ssl = ssl
        for acceptor in self._acceptors:
            if isinstance(acceptor, TlsAcceptor):
                acceptor.context = ssl

    def forget_heads(self) -> None:
        """Decide anew for every further request whether it may pass, also on open connections."""
        self._service.forget_heads()

    def stop_accepting(self) -> None:
        """Close the listening sockets and end unfinished TLS handshakes; open connections go on."""
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()

    async def drain(self, timeout_s: float) -> bool:
        """Close idle connections at once and the others after their last response.

        Returns False when some were still open after ``timeout_s`` seconds; these are dropped.
        """
        self.stop_accepting()
        # Peers that were accepted just before may still become connections: they see this.
        self._service.draining = True
        emptied = asyncio.Event()
        self._service.on_empty = emptied.set
        # A copy: a connection that closes at once leaves the set.
        for connection in list(self._service.connections):
            connection.drain()
        if self._service.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(emptied.wait(), timeout_s)
        # The timeout alone does not decide: the last connection may have ended in the same turn.
        in_time = not self._service.connections
        self.abort()
        return in_time

    def abort(self) -> None:
        """Drop all open connections, with the responses that were not sent."""
        self.stop_accepting()
        self._service.draining = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for connection in list(self._service.connections):
            connection.abort()

    def sweep(self) -> None:
        """Let the connections notice the time that has passed on the clock, in whole seconds."""
        now_s = self._clock.now_ns() // _NS_PER_S
        passed_s = now_s - self._swept_s
        if passed_s <= 0:
            return
        # Whole seconds: the rest of a second counts in the next sweep.
        self._swept_s = now_s
        self._service.age(passed_s)
        for connection in list(self._service.connections):
            connection.quiet += passed_s
            if connection.quiet >= connection.quiet_limit_s:
                connection.check_time()

    def _sweep_again(self) -> None:
        # Armed first: a sweep that raises must not be the last one.
        self._sweep_timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_again)
        self.sweep()

    async def _accept_on(self, opened: socket.socket, loop: asyncio.AbstractEventLoop) -> Acceptor:
        if self._ssl is not None:
            return TlsAcceptor(opened, self._ssl, self._connect)
        return await loop.create_server(self._connect, sock=opened, backlog=BACKLOG)

    async def _open_sockets(self, loop: asyncio.AbstractEventLoop) -> list[socket.socket]:
        if self._configured_port is None:
            return []
        host = bare_host(self._host)
        try:
            found = await loop.getaddrinfo(host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError) as error:
            raise OptionError(
                f"cannot listen on {self.address}: the address {host!r} is not known ({error}); "
                f"correct {self._option.replace('port', 'address')}"
            ) from error
        opened: list[socket.socket] = []
        try:
            # getaddrinfo may return an address twice, and binding it again would fail.
            for family, _, _, _, address in dict.fromkeys(found):
                opened.append(self._open_socket(family, (address[0], self._port, *address[2:])))
                # For port 0 the system chooses one for the first address; the others get the same.
                self._port = opened[0].getsockname()[1]
        except OSError as error:
            for one in opened:
                one.close()
            raise OptionError(self._refusal(error)) from error
        return opened

    def _open_socket(self, family: int, address: tuple[object, ...]) -> socket.socket:
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                # Each family has a socket of its own; otherwise ``::`` would take the port of IPv4 as well.
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if os.name == "posix":
                # A restart does not wait for old connections in TIME_WAIT. On Windows the option would share the port
                # instead.
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._reuse_port:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            # Accepted sockets inherit these; the loops set TCP_NODELAY on their own as well.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            opened.bind(address)
            # Bound sockets of one process may share a port until one listens: so a taken port shows here.
            opened.listen(BACKLOG)
        except OSError:
            opened.close()
            raise
        return opened

    def _refusal(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            service = _SERVICES.get(self._option, self._option)
            return (
                f"failed to start {service} service: Unavailable - Socket '{self.address}' already in use; stop the "
                f"program that uses it or choose another port with {self._option}"
            )
        if error.errno == errno.EACCES:
            advice = f"ports below 1024 need privileges; choose another port with {self._option}"
        else:
            address_option = self._option.replace("-port", "-address")
            advice = f"{error.strerror or error}; correct {address_option} or {self._option}"
        return f"cannot listen on {self.address}: {advice}"


def bare_host(host: str) -> str:
    """The host of an address option: ``ipv6:[::1]`` and ``[::1]`` give ``::1``, others stay as they are."""
    return host.removeprefix("ipv6:").removeprefix("[").removesuffix("]")


def shown_address(host: str, port: int) -> str:
    """``host:port`` with the brackets that an IPv6 host needs."""
    bare = bare_host(host)
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def _reads_in_one_step(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop takes a buffer, fills it and delivers it with nothing in between: all but Windows' proactor."""
    return isinstance(loop, asyncio.SelectorEventLoop) or _is_uvloop(loop)


def _is_uvloop(loop: asyncio.AbstractEventLoop) -> bool:
    return type(loop).__module__.startswith("uvloop")

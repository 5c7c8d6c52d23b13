"""The sockets of an HTTP front end: opening them, watching the connections' times and closing in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Final

from naiad.clock import SystemClock
from naiad.errors import OptionError
from naiad.frontends.http.protocol import HttpConnection
from naiad.frontends.http.service import HttpLimits, HttpService

if TYPE_CHECKING:
    from naiad.clock import Clock
    from naiad.frontends.http.exchange import Application

BACKLOG: Final = 2048
SWEEP_SECONDS: Final = 1.0
_NS_PER_S: Final = 1_000_000_000


class HttpListener:
    """Accepts HTTP/1.1 connections on one address and port and hands their requests to an application.

    ``option`` is the command-line option that set the port; error texts name it. All methods belong to the event loop's
    thread. Whoever starts a listener calls ``drain`` or ``abort`` in the end.
    """

    def __init__(
        self,
        application: Application,
        host: str,
        port: int,
        *,
        limits: HttpLimits | None = None,
        reuse_port: bool = False,
        clock: Clock | None = None,
        option: str = "--http-port",
    ) -> None:
        self._application = application
        self._host = host
        self._port = port
        self._limits = limits or HttpLimits()
        self._reuse_port = reuse_port
        self._clock = clock or SystemClock()
        self._option = option
        self._servers: list[asyncio.Server] = []
        self._service = HttpService(application, self._limits)
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
        """Open connections, those that are being closed included."""
        return len(self._service.connections)

    async def start(self) -> None:
        """Open the sockets and accept connections.

        Raises:
            OptionError: the address is unknown or the port cannot be used; nothing stays open.
        """
        loop = asyncio.get_running_loop()
        self._service.shared_buffer = _reads_in_one_step(loop)
        self._service.gathers_writes = _is_uvloop(loop)
        for opened in await self._open_sockets(loop):
            self._servers.append(await loop.create_server(self._connect, sock=opened, backlog=BACKLOG))
        self._swept_s = self._clock.now_ns() // _NS_PER_S
        self._sweep_timer = loop.call_later(SWEEP_SECONDS, self._sweep_again)

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections go on."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def drain(self, timeout_s: float) -> bool:
        """Close idle connections at once and the others after their last answer.

        Gives back False when some were still open after ``timeout_s`` seconds; these are dropped.
        """
        self.stop_accepting()
        self._service.draining = True
        emptied = asyncio.Event()
        self._service.on_empty = emptied.set
        for connection in list(self._service.connections):
            connection.drain()
        if self._service.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(emptied.wait(), timeout_s)
        in_time = not self._service.connections
        self.abort()
        return in_time

    def abort(self) -> None:
        """Drop everything that is open, answers that were not sent included."""
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
        self._swept_s = now_s
        self._service.pool.age(passed_s)
        for connection in list(self._service.connections):
            connection.quiet += passed_s
            if connection.quiet >= connection.patience:
                connection.check_time()

    def _sweep_again(self) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_again)
        self.sweep()

    def _connect(self) -> HttpConnection:
        return HttpConnection(self._service)

    async def _open_sockets(self, loop: asyncio.AbstractEventLoop) -> list[socket.socket]:
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
            for family, _, _, _, address in dict.fromkeys(found):
                opened.append(self._open_socket(family, (address[0], self._port, *address[2:])))
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
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if os.name == "posix":
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
            advice = f"the port is in use; stop the program that uses it or choose another port with {self._option}"
        elif error.errno == errno.EACCES:
            advice = f"ports below 1024 need privileges; choose another port with {self._option}"
        else:
            advice = f"{error.strerror or error}; correct {self._option} or its address option"
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

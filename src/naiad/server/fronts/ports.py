"""The ports of a server of several processes: each front end opens them for itself, so their numbers come first."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from naiad.errors import OptionError
from naiad.frontends.net.listener import bare_host, shown_address

if TYPE_CHECKING:
    from naiad.options import ServerOptions


@dataclass(slots=True)
class SettledPorts:
    """Options whose ports several processes can share, and the sockets that reserve the ports until ``close``."""

    options: ServerOptions
    reserved: list[socket.socket] = field(default_factory=list)

    def close(self) -> None:
        """Let others have the ports."""
        for one in self.reserved:
            one.close()
        self.reserved.clear()


def settled_ports(options: ServerOptions) -> SettledPorts:
    """``options`` with the numbers of free ports in place of 0.

    Raises:
        OptionError: the system cannot share a port among processes, an address is unknown, or a port is taken.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise OptionError("--frontend-processes needs a system where processes can share a port (SO_REUSEPORT)")
    found = SettledPorts(options)
    try:
        http = grpc = 0
        if options.allow_grpc:
            grpc = _settle(found, options.grpc_address, options.grpc_port, "--grpc-port", options.reuse_grpc_port)
        if options.allow_http:
            http = _settle(found, options.http_address, options.http_port, "--http-port", options.reuse_http_port)
    except BaseException:
        found.close()
        raise
    found.options = replace(
        options,
        http_port=http or options.http_port,
        grpc_port=grpc or options.grpc_port,
        reuse_http_port=True,
        reuse_grpc_port=True,
    )
    return found


def _settle(found: SettledPorts, host: str, port: int, option: str, shares: bool) -> int:
    """Reserve a port, without listening on it; returns its number."""
    address = shown_address(host, port)
    try:
        family, _, _, _, place = socket.getaddrinfo(
            bare_host(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise OptionError(
            f"cannot listen on {address}: the address {host!r} is not known ({error}); "
            f"correct {option.replace('port', 'address')}"
        ) from error
    try:
        if not shares:
            # A port that another server shares with others would otherwise be shared with it, too.
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
                probe.listen()
                place = probe.getsockname()
        reserved = socket.socket(family, socket.SOCK_STREAM)
        found.reserved.append(reserved)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(place)
    except OSError as error:
        reason = (
            f"Unavailable - Socket '{address}' already in use; stop the program that uses it or choose another port"
            if error.errno == errno.EADDRINUSE
            else f"{error.strerror or error}; choose another port or address"
        )
        raise OptionError(f"cannot listen on {address}: {reason} with {option}") from error
    number: int = reserved.getsockname()[1]
    return number

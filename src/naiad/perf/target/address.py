"""Where a server listens, and how its connections are secured."""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

from naiad.perf.target.protocol import TargetError

CONNECT_S = 10.0
"""The longest wait for a connection, in seconds."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""What OpenSSL calls bytes that are no record of TLS."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server that was reached once.

    Attributes:
        host, port: as they were asked for.
        family, socket_address: of the socket that reached it.
        tls: None for plain connections.
    """

    host: str
    port: int
    family: int
    socket_address: Any
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        """``host:port``, with brackets around a host of colons."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def split_url(url: str, default_port: int) -> tuple[bool, str, int, str]:
    """Whether TLS is asked for, the host, the port and the path of a url whose scheme and port may be missing.

    Raises:
        TargetError: the port is no number.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    place, slash, path = rest.partition("/")
    host, port = _split_port(place)
    if port and not port.isdigit():
        raise TargetError(f"the port of '{url}' is '{port}', expected a number")
    fallback = {"https": 443, "http": 80}.get(scheme, default_port)
    return scheme in ("https", "grpcs"), host or "localhost", int(port or fallback), (slash + path).rstrip("/")


def _split_port(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        return host, rest.removeprefix(":")
    if place.count(":") > 1:
        return place, ""
    host, _, port = place.partition(":")
    return host, port


def reach(host: str, port: int, tls: ssl.SSLContext | None = None, within_s: float = CONNECT_S) -> Address:
    """The address of a server, once a connection to it was made and closed again.

    Args:
        within_s: the longest wait for each of the host's addresses.

    Raises:
        TargetError: no connection was made; the text has the cause.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TargetError(f"cannot find the host of {host}:{port}: {error.strerror or error}") from None
    causes = []
    for family, _, _, _, socket_address in found:
        try:
            _try_once(family, socket_address, host, tls, within_s)
        except OSError as error:
            causes.append(cause_of(error, within_s))
            continue
        return Address(host, port, family, socket_address, tls)
    raise TargetError(f"cannot connect to {host}:{port}: {'; '.join(dict.fromkeys(causes))}")


def _try_once(family: int, socket_address: Any, host: str, tls: ssl.SSLContext | None, within_s: float) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as plain:
        plain.settimeout(within_s)
        plain.connect(socket_address)
        if tls is not None:
            with tls.wrap_socket(plain, server_hostname=host):
                pass


def cause_of(error: OSError, within_s: float = CONNECT_S) -> str:
    """What went wrong with a socket, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        hint = ": the server sent what is no TLS" if error.reason in _NO_TLS else ""
        return f"TLS failed: {error.reason or error}{hint}"
    if isinstance(error, TimeoutError):
        return f"no answer within {within_s:g} s"
    return str(os.strerror(error.errno) if error.errno else error)

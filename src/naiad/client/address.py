"""The address of a server, and what a client says when it cannot be reached."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from naiad.client.errors import ConnectionFailedError, DeadlineExceededError
from naiad.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server listens; ``tls`` is None without encryption."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        """``host:port``, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def unreachable(self, error: OSError | None, *, was_sent: bool) -> ConnectionFailedError:
        """The error for a connection that failed, or was closed before the response."""
        cause = "the server closed the connection before its response" if error is None else str(error)
        return ConnectionFailedError(f"{self.authority}: {cause}", was_sent=was_sent)

    def too_late(self, timeout_s: float) -> DeadlineExceededError:
        """The error for a response that did not come in time."""
        return DeadlineExceededError(f"{self.authority}: no response within {timeout_s:g} s")


def read_address(url: str, tls: ssl.SSLContext | None) -> ServerAddress:
    """The address in ``host:port``, ``http://host:port`` or ``https://host:port``.

    Args:
        tls: how to encrypt; None for the system's certificates, where the address begins with ``https``.

    Raises:
        InvalidArgumentError: it is no such address.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.path not in ("", "/"):
        raise InvalidArgumentError(
            f"found the address {url!r}, expected one such as localhost:8000 or https://host:443"
        )
    if parts.scheme == "https":
        return ServerAddress(parts.hostname, port or 443, tls or ssl.create_default_context())
    return ServerAddress(parts.hostname, port or 8000, tls)

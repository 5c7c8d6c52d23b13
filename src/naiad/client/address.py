"""The address of a server, and what a client says when it cannot be reached."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from naiad.client.errors import ConnectionFailedError, DeadlineExceededError
from naiad.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server listens; ``tls`` is None without encryption, ``is_grpc`` says which protocol it speaks there."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    is_grpc: bool = False

    @property
    def authority(self) -> str:
        """``host:port``, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def unreachable(self, error: OSError | None, *, was_sent: bool, is_new: bool = False) -> ConnectionFailedError:
        """The error for a connection that failed, or was closed before the response.

        Args:
            is_new: nothing has come over the connection yet.
        """
        if error is None:
            cause = "the server closed the connection before its response"
        elif isinstance(error, ssl.SSLCertVerificationError):
            cause = (
                f"the server's certificate is not trusted: {error.verify_message}; name a file with its certificate "
                "authority in the variable SSL_CERT_FILE, or give tls= to the client"
            )
        else:
            cause = error.strerror or str(error)
        if is_new and was_sent and self.tls is None:
            cause += f"; if the port is encrypted, write {'grpcs' if self.is_grpc else 'https'}://{self.authority}"
        place = self.authority if was_sent or error is None else f"cannot connect to {self.authority}"
        return ConnectionFailedError(f"{place}: {cause}", was_sent=was_sent)

    def too_late(self, timeout_s: float) -> DeadlineExceededError:
        """The error for a response that did not come in time."""
        return DeadlineExceededError(f"{self.authority}: no response within {timeout_s:g} s")


_PORTS: Final = {"http": 8000, "https": 443, "grpc": 8001, "grpcs": 443}


def read_address(url: str, tls: ssl.SSLContext | None) -> ServerAddress:
    """The address in ``host:port``, which may begin with ``http://``, ``https://``, ``grpc://`` or ``grpcs://``.

    Args:
        tls: how to encrypt; None for the system's certificates, where the address begins with ``https`` or ``grpcs``.

    Raises:
        InvalidArgumentError: it is no such address.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in _PORTS or not parts.hostname or port == 0 or parts.path not in ("", "/"):
        raise InvalidArgumentError(
            f"found the address {url!r}, expected one such as localhost:8000, https://host:443 or grpc://localhost:8001"
        )
    is_grpc = parts.scheme.startswith("grpc")
    if parts.scheme.endswith("s") and tls is None:
        tls = ssl.create_default_context()
    if tls is not None and is_grpc:
        tls.set_alpn_protocols(["h2"])
    return ServerAddress(parts.hostname, port or _PORTS[parts.scheme], tls, is_grpc)

"""Addresses of servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlparse

from naiad.pytriton.client.exceptions import PyTritonClientInvalidUrlError
from naiad.pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT

_PORTS: Final = {"http": DEFAULT_HTTP_PORT, "grpc": DEFAULT_GRPC_PORT}


@dataclass
class TritonUrl:
    """The address of a server.

    Attributes:
        scheme: ``http`` or ``grpc``.
        hostname: name or address.
        port: 8000 or 8001 where none is given.
    """

    scheme: str
    hostname: str
    port: int

    @classmethod
    def from_url(cls, url: Any) -> Self:
        """Read ``localhost``, ``localhost:8000``, ``http://localhost`` or ``grpc://localhost:8001``.

        Raises:
            PyTritonClientInvalidUrlError: it is none of these.
        """
        if not isinstance(url, str):
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}. Url must be a string.")
        text = url if "://" in url else f"http://{url}"
        try:
            parsed = urlparse(text)
            scheme, host, port = parsed.scheme.lower(), parsed.hostname, parsed.port
        except ValueError as error:
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}: {error}") from error
        if scheme not in _PORTS or not host:
            raise PyTritonClientInvalidUrlError(
                f"Invalid url {url}: expected http://host:port or grpc://host:port, only http and grpc are supported"
            )
        return cls(scheme, host, port or _PORTS[scheme])

    @property
    def with_scheme(self) -> str:
        """Such as ``http://localhost:8000``."""
        return f"{self.scheme}://{self.without_scheme}"

    @property
    def without_scheme(self) -> str:
        """Such as ``localhost:8000``."""
        return f"[{self.hostname}]:{self.port}" if ":" in self.hostname else f"{self.hostname}:{self.port}"

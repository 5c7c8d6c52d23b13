"""The headers of a gRPC call of a client."""

from __future__ import annotations

from naiad.perf.settings import TargetSettings
from naiad.perf.target.address import Address


def call_headers(path: str, address: Address, settings: TargetSettings) -> list[tuple[str, str]]:
    """Name and value of each, pseudo-headers first, as HTTP/2 wants them."""
    compression = settings.compression
    return [
        (":method", "POST"),
        (":scheme", "http" if address.tls is None else "https"),
        (":path", path),
        (":authority", address.authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "naiad-perf"),
        *([("grpc-encoding", compression)] if compression != "none" else []),
        *((name.lower(), value) for name, value in settings.headers),
    ]

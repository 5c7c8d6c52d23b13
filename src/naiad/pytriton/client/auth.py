"""Headers with the token of protected endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from naiad.pytriton.constants import TRITON_ACCESS_HEADER

_GRPC_HEADER: Final = f"triton-grpc-protocol-{TRITON_ACCESS_HEADER}"
_HEADERS: Final = {"http": TRITON_ACCESS_HEADER, "grpc": _GRPC_HEADER}


def create_auth_headers(access_token: str | None, protocol: str) -> dict[str, str]:
    """The header with a token over ``http`` or ``grpc``.

    Raises:
        ValueError: there is no token, or the protocol is another one.
    """
    if not access_token:
        raise ValueError("access_token cannot be None or empty")
    if protocol.lower() not in _HEADERS:
        raise ValueError(f"Invalid protocol '{protocol.lower()}'. Must be 'http' or 'grpc'")
    return {_HEADERS[protocol.lower()]: access_token}


def extract_access_token_from_headers(headers: Mapping[str, str] | None) -> str | None:
    """The token in headers of either protocol; None for none.

    Raises:
        ValueError: there are two, and they differ.
    """
    found = [headers[name] for name in _HEADERS.values() if headers and headers.get(name) is not None]
    if len(set(found)) > 1:
        raise ValueError(
            f"Conflicting authentication headers found: '{TRITON_ACCESS_HEADER}' and '{_GRPC_HEADER}' contain "
            "different tokens. Please use consistent tokens."
        )
    return found[0] or None if found else None

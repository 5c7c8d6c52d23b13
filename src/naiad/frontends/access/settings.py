"""From the server's options to the gates of its ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from naiad.clock import SystemClock
from naiad.frontends.access.gate import Gate
from naiad.frontends.access.keys import KeyRing, read_keys

if TYPE_CHECKING:
    from naiad.clock import Clock
    from naiad.options import ServerOptions

GRPC_PREFIX: Final = "triton-grpc-protocol-"
"""The reference's prefix of the header names of ``--grpc-restricted-protocol``."""


@dataclass(frozen=True, slots=True)
class Gates:
    """A gate for each port. They share the API keys and the used part of their rate limits.

    ``keys`` are these keys; None when the server asks for none.
    """

    http: Gate
    grpc: Gate
    metrics: Gate
    openai: Gate
    keys: KeyRing | None = None


def gates(options: ServerOptions, clock: Clock | None = None) -> Gates:
    """The gates that the options ask for.

    Raises:
        OptionError: the file with the API keys cannot be used.
    """
    keys = read_keys(options.api_key, options.api_key_file)
    # One ring for all gates: a rate limit counts the requests over every port.
    ring = KeyRing(keys, clock or SystemClock()) if keys else None
    return Gates(
        Gate(options.http_restricted_api, ring),
        Gate(options.grpc_restricted_protocol, ring, GRPC_PREFIX, "protocol"),
        # The reference restricts no feature of the metrics port.
        Gate((), ring),
        Gate(options.openai_restricted_api, ring),
        ring,
    )

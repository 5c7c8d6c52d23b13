"""The limits of a process that serves ports, from the server's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from naiad.errors import QueueFullError, TooManyRequestsError
from naiad.frontends.http.server.content_coding import BodyTooLargeError, ContentTooLargeError
from naiad.frontends.http.server.state import HttpLimits
from naiad.scheduling.admission import RequestBudget

if TYPE_CHECKING:
    from naiad.frontends.net.memory_shares import MemoryShares
    from naiad.options import ServerOptions


def too_large_error(options: ServerOptions) -> type[BodyTooLargeError]:
    """The error for bodies that are too large once they are decompressed."""
    return ContentTooLargeError if options.http_standard_status else BodyTooLargeError


def http_limits(options: ServerOptions, shares: MemoryShares) -> HttpLimits:
    """The limits of the HTTP port that the options and the memory set."""
    return HttpLimits(
        max_body_bytes=options.http_max_input_size,
        too_large_status=413 if options.http_standard_status else 400,
        max_connections=options.http_max_connections,
        idle_s=options.http_idle_timeout_secs,
        max_arriving_bytes=shares.in_flight,
        max_waiting_bytes=shares.waiting,
    )


def request_budget(options: ServerOptions, shares: MemoryShares) -> RequestBudget:
    """The bounds on requests in flight."""
    return RequestBudget(
        options.max_in_flight_requests,
        shares.in_flight,
        options.max_in_flight_requests_per_model,
        TooManyRequestsError if options.overload_status == "429" else QueueFullError,
    )

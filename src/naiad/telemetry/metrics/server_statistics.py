"""Counters of the server that belong to no single model: the response cache and requests that ended early."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CacheFigures:
    """Counts since the server began, and what is there now. Durations are nanoseconds.

    ``used`` and ``capacity`` are bytes, 0 for a cache elsewhere, of which this server does not know how full it is.
    ``failures`` are look-ups and insertions that came to nothing because the cache elsewhere did not do its part.
    """

    capacity: int
    used: int = 0
    entries: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    lookup_ns: int = 0
    insertion_ns: int = 0
    failures: int = 0


@dataclass(slots=True)
class CancelCounts:
    """HTTP requests and gRPC calls that somebody still worked on.

    Attributes:
        client_cancel: the caller cancelled them; gRPC alone can say that.
        disconnect: the caller was gone, or its connection was ended.
        deadline: the caller's deadline passed.
    """

    client_cancel: int = 0
    disconnect: int = 0
    deadline: int = 0

    @property
    def by_reason(self) -> dict[str, int]:
        """The counts under the names that the metric gives them."""
        return {"client_cancel": self.client_cancel, "disconnect": self.disconnect, "deadline": self.deadline}

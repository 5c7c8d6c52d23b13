"""Counters of the server that belong to no single model: the response cache and requests that ended early."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CacheFigures:
    """Counters of the response cache since the server started, and its present size. Durations are nanoseconds.

    ``used`` and ``capacity`` are bytes, 0 for a remote cache, whose fill level is unknown here. ``failures`` are
    look-ups and insertions that a remote cache failed.
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
    """HTTP requests and gRPC calls that ended while they were in flight, by the cause.

    Attributes:
        client_cancel: the caller cancelled them, which only gRPC can express.
        disconnect: the caller disconnected, or its connection was closed.
        deadline: the caller's deadline passed.
    """

    client_cancel: int = 0
    disconnect: int = 0
    deadline: int = 0

    @property
    def by_reason(self) -> dict[str, int]:
        """The counts under the names that the metric gives them."""
        return {"client_cancel": self.client_cancel, "disconnect": self.disconnect, "deadline": self.deadline}

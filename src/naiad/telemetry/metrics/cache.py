"""What is counted about the response cache as a whole."""

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

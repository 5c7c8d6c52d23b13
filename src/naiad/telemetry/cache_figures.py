"""What is counted about the response cache as a whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CacheFigures:
    """Counts since the server began, and what is there now. Durations are nanoseconds.

    ``used`` and ``capacity`` are bytes.
    """

    capacity: int
    used: int = 0
    entries: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    lookup_ns: int = 0
    insertion_ns: int = 0

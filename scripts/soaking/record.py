"""What came of the requests: latencies by model and by minute, and every failure with its time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from naiad.errors import NaiadError
from naiad.perf.histogram import DurationHistogram

NS_PER_MINUTE = 60_000_000_000
SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed. Times are on the monotonic clock.

    Attributes:
        cause: the kind of error and its text.
        may_be_repeated: whether the server said that the request has not run, or a stream's error, which says nothing.
        sequence_began_ns: when the sequence of the request began; 0 for none.
    """

    target: str
    protocol: str
    cause: str
    may_be_repeated: bool
    began_ns: int
    ended_ns: int
    sequence_began_ns: int = 0


class Record:
    """Counts requests from ``began_ns`` on."""

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.by_target: dict[str, DurationHistogram] = defaultdict(DurationHistogram)
        self.by_minute: dict[int, DurationHistogram] = defaultdict(DurationHistogram)
        self.failures: list[Failure] = []

    @property
    def requests(self) -> int:
        """How many were responded to as they should be."""
        return sum(histogram.count for histogram in self.by_target.values())

    def note(self, target: str, latency_ns: int, ended_ns: int) -> None:
        """Count a request that had the right response."""
        self.by_target[target].add(latency_ns)
        self.by_minute[(ended_ns - self.began_ns) // NS_PER_MINUTE].add(latency_ns)


def cause_of(error: Exception) -> str:
    """The kind of an error and its text, without what differs from one request to the next."""
    text = str(error) if isinstance(error, NaiadError) else repr(error)
    status = getattr(error, "status", None)
    kind = type(error).__name__ if status is None else f"{type(error).__name__} {status}"
    return f"{kind}: {text[:SHOWN_CHARACTERS]}"


def by_cause(failures: list[Failure]) -> Counter[tuple[str, str]]:
    """How many failures there are of each target and cause."""
    return Counter((failure.target, failure.cause) for failure in failures)

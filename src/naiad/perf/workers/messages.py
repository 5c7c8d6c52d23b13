"""What the processes of the load generator say to one another, as pickled objects over a pair of sockets.

Both ends are the same program, and nobody else can write to the sockets. All times are on the monotonic clock, which
the processes of a machine share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from naiad.perf.load.share import Share
from naiad.perf.measure.processor import ProcessorTime
from naiad.perf.results import LoadLevel, RequestRecord, Window
from naiad.perf.settings import PerfSettings
from naiad.perf.steps import StepStream
from naiad.shared_memory.region import RegionRef


@dataclass(frozen=True, slots=True)
class Prepare:
    """Reach the server and encode the requests. Answered by ``Done``.

    Attributes:
        outputs: where outputs lie in shared memory; None when responses carry them.
        exported: what each step holds, when all requests are kept for an export.
    """

    settings: PerfSettings
    streams: tuple[StepStream, ...]
    outputs: Mapping[str, RegionRef] | None
    exported: Sequence[dict[str, object]] | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """Open the connections of a part of a level. Answered by ``Done``."""

    level: LoadLevel
    share: Share


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the load."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Say what has happened since the last cut. Answered by ``WindowPart``.

    Attributes:
        begins: whether the first window begins: requests before it are in no export.
    """

    at_ns: int
    begins: bool = False


@dataclass(frozen=True, slots=True)
class StopLoad:
    """Send nothing more; what is in flight goes on."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connections of the level. Answered by ``Done``."""


@dataclass(frozen=True, slots=True)
class Done:
    """Something was done, or why it could not be.

    Attributes:
        failure: in words; empty for a success.
        records: of a level that was closed, when all requests are kept.
        in_flight: its requests that had no response when it was closed.
    """

    failure: str = ""
    records: list[RequestRecord] = field(default_factory=list)
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """What has become of the load; sent whenever it changes."""

    is_warm: bool = False
    is_over: bool = False
    is_drained: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class WindowPart:
    """What happened between two cuts.

    Attributes:
        processor_time: since the start of the process.
        delays_ns: of the turns of its loop.
        in_flight: requests without a response.
    """

    window: Window
    processor_time: ProcessorTime
    delays_ns: list[int] = field(default_factory=list)
    in_flight: int = 0

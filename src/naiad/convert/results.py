"""What a conversion found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from naiad.convert.errors import StepFailure


@dataclass(frozen=True, slots=True)
class BatchLevel:
    """One batch size: inferences a second, and latencies in milliseconds."""

    batch: int
    rate: float
    p50_ms: float
    p99_ms: float
    mean_ms: float
    is_stable: bool = True


@dataclass(slots=True)
class BatchLevels:
    """All batch sizes that were measured.

    Attributes:
        note: why the next one was not.
        rss_bytes: resident memory of the processes that ran the model, at its greatest.
    """

    levels: list[BatchLevel] = field(default_factory=list)
    note: str = ""
    rss_bytes: int = 0

    @property
    def best(self) -> BatchLevel:
        """The level with the greatest rate."""
        return max(self.levels, key=lambda level: level.rate)

    @property
    def first(self) -> BatchLevel:
        """The level of the smallest batch."""
        return self.levels[0]

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> BatchLevels:
        """What a step of ``measure`` returned."""
        levels = [
            BatchLevel(
                int(one["batch"]), one["rate"], one["p50_ms"], one["p99_ms"], one["mean_ms"], bool(one["is_stable"])
            )
            for one in given["levels"]
        ]
        return cls(levels, given["note"], given["rss_bytes"])


@dataclass(slots=True)
class FormatResult:
    """One format.

    Attributes:
        is_wanted: whether it was asked for; else another one needed it.
        made: what the step returned that made the file: file, inputs, outputs, notes.
        verified: what verification returned.
        failure: of the first step that failed, which ``failed_in`` names.
        script: runs that step again.
        seconds, peak_bytes: of the step that made the file.
        precision: of its weights.
    """

    target: str
    is_wanted: bool = True
    made: dict[str, Any] | None = None
    verified: dict[str, Any] | None = None
    measured: BatchLevels | None = None
    failure: StepFailure | None = None
    failed_in: str = ""
    script: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    size_bytes: int = 0
    precision: str = "fp32"
    frameworks: tuple[str, ...] = ()

    @property
    def is_made(self) -> bool:
        """Whether there is a file."""
        return self.made is not None

    @property
    def is_good(self) -> bool:
        """Whether it may be published: verified, and measured."""
        return bool(self.verified and self.verified["is_good"] and self.measured and self.measured.levels)

    @property
    def state(self) -> str:
        """In a few words."""
        if self.failure is not None:
            return f"{self.failed_in} failed"
        if self.verified is not None and not self.verified["is_good"]:
            return "not verified"
        return "ok" if self.is_good else "made"


@dataclass(slots=True)
class Conversion:
    """All of it.

    Attributes:
        described: what the first step returned: kind, signature, precision, samples.
        source: how fast the source itself is; None when that could not be measured.
        chosen: the name of the best format; empty for none.
        reason: why it was chosen, or why none was.
        published: the folder of the published model; empty when nothing was published.
        publish_failure: why nothing was published; empty when nothing went wrong.
    """

    model: str
    name: str
    work: str
    strategy: str = ""
    described: dict[str, Any] = field(default_factory=dict)
    source: BatchLevels | None = None
    formats: list[FormatResult] = field(default_factory=list)
    chosen: str = ""
    reason: str = ""
    published: str = ""
    publish_failure: str = ""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def of(self, target: str) -> FormatResult | None:
        """The result of one format."""
        return next((result for result in self.formats if result.target == target), None)

    def as_json(self) -> dict[str, Any]:
        """For ``from_json``, and for programs."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Conversion:
        """What ``as_json`` made, also after a way through a file."""
        known = dict(given)
        known["source"] = BatchLevels.from_json(known["source"]) if known["source"] else None
        known["formats"] = [_format(one) for one in known["formats"]]
        return cls(**known)


def _format(given: Mapping[str, Any]) -> FormatResult:
    known = dict(given)
    known["measured"] = BatchLevels.from_json(known["measured"]) if known["measured"] else None
    known["failure"] = StepFailure(**known["failure"]) if known["failure"] else None
    known["frameworks"] = tuple(known["frameworks"])
    return FormatResult(**known)

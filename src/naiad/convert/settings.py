"""What a conversion is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Strategy(StrEnum):
    """What the best format is."""

    MAX_THROUGHPUT = "max-throughput"
    MIN_LATENCY = "min-latency"
    LATENCY_BUDGET = "latency-budget"
    SMALLEST = "smallest"


class OutputMetric(StrEnum):
    """How the outputs of a format are compared with those of the source when a threshold is given."""

    TOP1 = "top1"
    COSINE = "cosine"


@dataclass(frozen=True, slots=True)
class Limits:
    """What each step may use.

    Attributes:
        time_s: in seconds.
        memory_bytes: of the step and of all processes that it starts, resident; 0 for no limit.
        disk_bytes: what must be free where the step writes, when it starts.
    """

    time_s: float = 600.0
    memory_bytes: int = 0
    disk_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Verification:
    """When the outputs of a format are good enough.

    Attributes:
        metric: decides together with ``minimum``; None leaves it to the tolerances.
        minimum: the lowest value of the metric, or of a number that ``function`` returns.
        function: ``file.py:name``, called with the outputs of the format and those of the source: two lists with a
            dictionary of arrays for each sample. It returns whether they are good enough, or a number.
    """

    metric: OutputMetric | None = None
    minimum: float | None = None
    function: str = ""

    @property
    def is_users(self) -> bool:
        """Whether the user decides, so that quantised formats can be verified too."""
        return self.metric is not None or bool(self.function)


@dataclass(frozen=True, slots=True)
class Measuring:
    """How formats are measured.

    Attributes:
        batch_sizes: those to try, ascending; empty for 1, 2, 4, ... and ``max_batch``.
        window_ms: the length of one window; three of them have to agree.
        stability_percent: by how much they may differ.
        max_trials: windows at most.
        cutoff: the least gain in throughput for which the next batch size is tried; None to try them all.
        budget_s: after this time no larger batch is tried for a format.
    """

    batch_sizes: tuple[int, ...] = ()
    max_batch: int = 32
    window_ms: int = 400
    stability_percent: float = 10.0
    max_trials: int = 8
    cutoff: float | None = 0.05
    budget_s: float = 60.0

    @property
    def sizes(self) -> list[int]:
        """The batch sizes to try."""
        if self.batch_sizes:
            return sorted(set(self.batch_sizes))
        sizes = [1]
        while sizes[-1] * 2 < self.max_batch:
            sizes.append(sizes[-1] * 2)
        return sizes if self.max_batch == 1 else [*sizes, self.max_batch]


@dataclass(frozen=True, slots=True)
class ConvertSettings:
    """One conversion.

    Attributes:
        model: a file or folder, ``file.py:name``, or ``pickle:FILE``.
        data: ``samples.npz``, a folder of such files, or ``file.py:function``.
        work: the folder for all that the steps write.
        formats: names of ``FORMATS``; empty for all that can be reached.
        sample_count: the most samples that are taken from the loader.
        batch: rows of one sample where a file has rows.
        batching: whether the first axis is that of a batch; None to find out.
        input_names, output_names: instead of those that are found.
        latency_budget_ms: for the strategy of that name.
        repository: where the chosen format is published; None for nowhere.
        name: of the published model; empty for the file's.
        labels: a file with a label per line for the first output; None for none.
        is_dry: show what would be published, and write nothing there.
        opset: of ONNX; 0 for the exporter's own.
    """

    model: str
    data: str
    work: Path
    formats: tuple[str, ...] = ()
    sample_count: int = 100
    batch: int = 4
    batching: bool | None = None
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    strategy: Strategy = Strategy.MAX_THROUGHPUT
    latency_budget_ms: float = 0.0
    verification: Verification = field(default_factory=Verification)
    measuring: Measuring = field(default_factory=Measuring)
    limits: Limits = field(default_factory=Limits)
    repository: Path | None = None
    name: str = ""
    labels: Path | None = None
    is_dry: bool = False
    opset: int = 0

"""The figures of the one model version that a page shows in detail: its batch sizes and the stages of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from naiad.frontends.dashboard.model_figures import rounded

if TYPE_CHECKING:
    from naiad.execution.model.interface import LoadedVersion
    from naiad.telemetry.metrics.model_statistics import ModelStatistics

STAGES: Final = ("queue", "compute_input", "compute_infer", "compute_output")
_MAX_SIZES: Final = 64
"""Batch sizes that are shown; those that ran most often come first."""


class _DetailCounters(NamedTuple):
    statistics: ModelStatistics
    requests: int
    stages_ns: tuple[int, ...]
    runs: dict[int, int]


class ModelDetail:
    """The changes of one version between two looks."""

    def __init__(self) -> None:
        self._before: _DetailCounters | None = None

    def read(self, model: LoadedVersion) -> dict[str, Any]:
        """Runs by batch size, and the mean milliseconds of each stage of a request, since the look before."""
        statistics = model.statistics
        now = _DetailCounters(
            statistics,
            statistics.success.count,
            tuple(getattr(statistics, stage).ns for stage in STAGES),
            {size: found.compute_infer.count for size, found in statistics.batches.items()},
        )
        before, self._before = self._before, now
        if before is None or before.statistics is not statistics:
            return {"sizes": {}, "stages": None}
        grown = {size: count - before.runs.get(size, 0) for size, count in now.runs.items()}
        often = sorted((size for size in grown if grown[size]), key=grown.__getitem__, reverse=True)[:_MAX_SIZES]
        requests = now.requests - before.requests
        stages = [
            rounded((after - earlier) / requests / 1e6)
            for after, earlier in zip(now.stages_ns, before.stages_ns, strict=True)
        ] if requests else None  # fmt: skip
        return {"sizes": {str(size): grown[size] for size in sorted(often)}, "stages": stages}

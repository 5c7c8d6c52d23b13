"""What a search's measurements come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from naiad.analyze.measurement import Measurement
from naiad.analyze.trial import AnalysisTrial


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How requests to the models are made, beside their number.

    Attributes:
        protocol: http or grpc.
        flags: options of ``naiad perf`` for each model, as words.
        window_ms: the length of the shortest windows.
        most_adjustments: how often windows are made longer for a model that completes nothing in them.
        time_limit_s: the longest time that one measurement may take.
        is_recorded: whether the flags say when requests are sent.
    """

    protocol: str = "grpc"
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    window_ms: int = 150
    most_adjustments: int = 10
    time_limit_s: float = 600.0
    metrics_url: str = ""
    metrics_interval_ms: int = 1000
    is_recorded: bool = False


class MeasurementSource(Protocol):
    """Measures trials."""

    def config(self, model: str) -> Mapping[str, Any]:
        """The configuration of a model as its server has completed it.

        Raises:
            TrialError: the model cannot be loaded.
            AnalyzeError: the server is gone, or loads nothing.
        """
        ...

    def idle(self, seconds: float) -> dict[str, Any]:
        """What the machine is busy with while nothing is measured: ``machine`` and ``gpus``; empty if not known."""
        ...

    def measure(self, trial: AnalysisTrial, scale: int) -> Measurement:
        """Measure a trial with windows of ``scale`` times the shortest length.

        Raises:
            TrialError: this trial cannot be measured.
            AnalyzeError: nothing can be measured any more.
            AnalysisStoppedError: the user has ended it.
        """
        ...

    def close(self) -> None:
        """Put everything back, and stop what was started."""
        ...

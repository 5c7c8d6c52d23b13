"""What several instances of a model gained, from the server's counts: how fast one is alone, and all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from naiad.perf.report.figures import level_name, shown_levels
from naiad.perf.report.scales import duration_text
from naiad.perf.results import LevelResult, ServerParts

_GAIN: Final = 1.1
"""Instances gain when they do so many times what one does: less is lost in the noise of a run."""
_BUSY: Final = 0.9
_SEVERAL: Final = 1.5
"""So many executions at a time, on average, show what instances do to one another."""
_LONE: Final = 1.1
_SAME_BATCH: Final = 1.1


@dataclass(frozen=True, slots=True)
class _Work:
    """How a level kept the instances busy.

    Attributes:
        batch: inferences of an execution, on average.
        execution_s: how long an execution took, with its input and output.
        busy: how many executions ran at a time, on average.
        rate: inferences a second, as the server counted them.
    """

    result: LevelResult
    batch: float
    execution_s: float
    busy: float
    rate: float

    @property
    def place(self) -> str:
        """The level's name."""
        return level_name(self.result.level)

    @property
    def execution(self) -> str:
        """The time of an execution."""
        return duration_text(self.execution_s * 1e6)


def instances_text(levels: list[LevelResult], instances: int) -> str:
    """Whether more than one instance gained anything; empty when the server's counts cannot tell.

    The statistics hold each execution's time once for every request in it, so the mean over the requests is the time
    of one execution. Executions that take longer when several run at a time have lost what the instances gained.

    Args:
        instances: how many instances the server runs; 0 when it does not say.
    """
    measured = [work for result in shown_levels(levels) if (work := _work_of(result)) is not None]
    if not measured or not instances:
        return ""
    busiest = max(measured, key=lambda work: work.busy)
    if instances == 1:
        return _of_one(busiest)
    if busiest.busy < _SEVERAL:
        return (
            f"Instances: {instances}, of which {busiest.busy:.1f} were busy at most, on average; more in flight would "
            "show what they gain"
        )
    lone = min(measured, key=lambda work: work.busy)
    if lone.busy > _LONE:
        return f"Instances: {instances}; a level with one request in flight would show what they gain"
    if max(lone.batch, busiest.batch) > _SAME_BATCH * min(lone.batch, busiest.batch):
        return (
            f"Instances: {instances}; their batches differ from level to level, so these figures cannot tell what they "
            "gain: naiad perf advise tries it"
        )
    return _gain_text(lone, busiest, instances)


def _work_of(result: LevelResult) -> _Work | None:
    server, duration_s = result.merged.server, result.merged.duration_s
    if server is None or server.composing or not server.executions or duration_s <= 0:
        return None
    execution_s = _execution_s(server)
    if not execution_s:
        return None
    busy = server.executions * execution_s / duration_s
    return _Work(result, server.inferences / server.executions, execution_s, busy, server.inferences / duration_s)


def _execution_s(server: ServerParts) -> float:
    runs = server.successes - server.cache_hits
    total_ns = server.compute_input_ns + server.compute_infer_ns + server.compute_output_ns
    return total_ns / runs / 1e9 if runs > 0 else 0.0


def _of_one(busiest: _Work) -> str:
    if busiest.busy < _BUSY:
        return ""
    share = min(busiest.busy, 1.0)
    return f"Instances: 1, busy for {share:.0%} of the time ({busiest.place}); naiad perf advise tries a second one"


def _gain_text(lone: _Work, busiest: _Work, instances: int) -> str:
    gain = busiest.rate * lone.execution_s / lone.batch
    name, verb = ("a second instance", "gains") if instances == 2 else (f"{instances} instances", "gain")
    took = f"an execution takes {lone.execution} alone ({lone.place}), and {busiest.execution} with"
    took += f" {busiest.busy:.1f} at a time ({busiest.place})"
    if gain < _GAIN:
        return f"Instances: {name} {verb} nothing here: {took}"
    return f"Instances: {name} {verb}: {gain:.2f} times the inferences of one: {took}"

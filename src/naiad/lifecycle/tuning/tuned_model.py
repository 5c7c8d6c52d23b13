"""One model that is tuned: its controller, and its counters as they were when they were read last."""

from __future__ import annotations

from collections import Counter
from typing import Any

from naiad.execution.model.loaded_model import LoadedModel
from naiad.options.latency_objective import LatencyObjective
from naiad.scheduling.tuning.controller import TuningController, TuningDecision
from naiad.scheduling.tuning.sample import TuningSample
from naiad.scheduling.tuning.setup import SetupLimits, TunedSetup
from naiad.telemetry.metrics.latencies import NO_DISTRIBUTIONS, Latencies
from naiad.telemetry.metrics.latency_counts import LatencyCounts

_NS = 1e9


class TunedModel:
    """A model with an objective. Belongs to the event loop, except ``controller``: one caller at a time uses it.

    Attributes:
        model: the version that serves.
        applied: the setup in which it runs.
        requests, late: how many requests there were, and how many of them above the limit.
        changes: how many decisions there were, by cause.
        is_changing: whether its instances are being changed, or a decision is being made.
        problem: why its last change failed, "" when it did not.
    """

    def __init__(self, model: LoadedModel, objective: LatencyObjective, limits: SetupLimits) -> None:
        self.objective = objective
        self.limits = limits
        self.controller = TuningController(limits, objective.quantile, objective.limit_ns)
        self.applied = limits.configured
        self.requests = self.late = 0
        self.changes: Counter[str] = Counter()
        self.is_changing = False
        self.problem = ""
        self.serve_by(model)

    def serve_by(self, model: LoadedModel) -> None:
        """Follow a version from its first request on, in the present setup."""
        self.model = model
        latencies = model.statistics.latencies
        # Without summaries and histograms: nobody has asked for them, and the tuner reads the counts alone.
        if not isinstance(latencies, Latencies):
            latencies = Latencies(NO_DISTRIBUTIONS, {}, model.spec.decoupled)
            model.keep_latencies(latencies)
        self._latencies = latencies
        self._taken = latencies.counts = LatencyCounts(self.objective.limit_ns / 1e3)
        self.batch_by(self.applied)
        self.skip()

    @property
    def is_outdated(self) -> bool:
        """Whether the model has other instances than the tuner gave it."""
        return self.limits.moves_instances and self.model.spec.instance_count != self.applied.instances

    def batch_by(self, setup: TunedSetup) -> None:
        """Make batches as a setup says."""
        if self.limits.batches:
            self.model.limit_batches(setup.max_rows, setup.delay_us * 1_000)

    def skip(self) -> None:
        """Leave out what happened up to now."""
        # In this order: what is noted and not yet counted would come with the next sample.
        self._latencies.settle()
        self._taken.take()
        self._read()

    def _read(self) -> None:
        statistics = self.model.statistics
        self._success = statistics.success.count, statistics.success.ns
        self._rows = statistics.inference_count
        self._batches = self._runs()

    def _runs(self) -> dict[int, tuple[int, int]]:
        batches = self.model.statistics.batches.items()
        return {rows: (b.compute_infer.count, b.compute_infer.ns + b.compute_input.ns) for rows, b in batches}

    def sample(self, seconds: float) -> TuningSample:
        """What happened in the ``seconds`` since the last call."""
        self._latencies.settle()
        counts, late = self._taken.take()
        (count, ns), rows, batches = self._success, self._rows, self._batches
        self._read()
        ran = {
            size: (runs - batches.get(size, (0, 0))[0], (passed - batches.get(size, (0, 0))[1]) / _NS)
            for size, (runs, passed) in self._batches.items()
        }
        requests = self._success[0] - count
        self.requests += requests
        self.late += late
        return TuningSample(
            seconds,
            requests,
            self._rows - rows,
            (self._success[1] - ns) / _NS,
            late,
            self.model.in_flight,
            counts,
            # A size that did not run has no time per batch.
            {size: found for size, found in ran.items() if found[0] > 0},
        )

    def count(self, decision: TuningDecision) -> None:
        """Count a decision."""
        self.changes[decision.cause.value] += 1

    def as_json(self) -> dict[str, Any]:
        """The present setup and the reason for it, for ``naiad explain``."""
        decision = self.controller.decision
        applied, configured = self.applied, self.limits.configured
        return {
            "objective": str(self.objective),
            "setup": as_settings(applied),
            "configured": as_settings(configured),
            "cause": decision.cause.value,
            "reason": decision.reason,
            "is_searching": self.controller.is_searching,
            "problem": self.problem,
            "requests": self.requests,
            "late": self.late,
        }


def as_settings(setup: TunedSetup) -> dict[str, int]:
    """A setup by the names that configurations use; ``threads`` is 0 where the server does not choose them."""
    return {
        "instances": setup.instances,
        "threads": setup.threads,
        "max_batch_size": setup.max_rows,
        "max_queue_delay_microseconds": setup.delay_us,
    }

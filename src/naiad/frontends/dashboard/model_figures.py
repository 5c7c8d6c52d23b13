"""The figures of each model version over the last second, from its counters."""

from __future__ import annotations

import math
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from naiad.telemetry.metrics.load import busy_ns

if TYPE_CHECKING:
    from naiad.engine.engine import Engine
    from naiad.execution.model.interface import LoadedVersion
    from naiad.telemetry.metrics.model_statistics import ModelStatistics

Row = dict[str, Any]
"""The figures of one version by their short names, which the page's ``fields.js`` explains."""

QUANTILES: Final = (0.5, 0.99)
_DIGITS: Final = 3
_NS_PER_S: Final = 1e9
_IDLE: Final[Row] = {"r": 0, "e": 0, "p": None, "b": None, "d": None, "u": 0}


class _RowCounters:
    """The counters of a version as they were at the last look."""

    __slots__ = ("at_ns", "busy_ns", "executions", "failed", "queue_ns", "rows", "statistics", "succeeded")

    def __init__(self, statistics: ModelStatistics) -> None:
        self.at_ns = monotonic_ns()
        self.statistics = statistics
        self.succeeded = statistics.success.count
        self.failed = statistics.failure.count
        self.executions = statistics.execution_count
        self.queue_ns = statistics.queue.ns
        self.rows = sum(size * found.compute_infer.count for size, found in statistics.batches.items())
        self.busy_ns = busy_ns(statistics)


class VersionFigures:
    """Reads the figures of all versions; ``read`` is called once a second while somebody looks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before: dict[tuple[str, int], _RowCounters] = {}

    def read(self) -> dict[tuple[str, str], Row]:
        """The figures of each version by model and version; "" for a model without a version.

        A version that is not loaded has its state and the reason ("w") only.
        """
        engine = self._engine
        engine.watch_latencies()
        rows: dict[tuple[str, str], Row] = {}
        for entry in engine.index(ready_only=False):
            name = f"{entry['namespace']}/{entry['name']}" if "namespace" in entry else entry["name"]
            rows[name, entry.get("version", "")] = {"s": entry.get("state", ""), "w": entry.get("reason", "")}
        loaded: dict[tuple[str, int], _RowCounters] = {}
        for model in engine.loaded_models():
            row = rows.setdefault((model.name, str(model.version)), {"s": "READY", "w": ""})
            self._fill(row, model, loaded)
        self._before = loaded
        return rows

    def forget(self) -> None:
        """Nobody looks any more."""
        self._before.clear()
        self._engine.watch_latencies_no_more()

    def _fill(self, row: Row, model: LoadedVersion, loaded: dict[tuple[str, int], _RowCounters]) -> None:
        statistics = model.statistics
        key = model.name, model.version
        before = self._before.get(key)
        row["k"] = model.spec.platform or model.spec.backend or "ensemble"
        row["m"] = statistics.memory_bytes
        row["q"] = statistics.pending
        row["i"] = (
            [states.get(state, 0) for state in ("idle", "busy", "down")] if (states := model.instance_states) else []
        )
        if model.problem:
            row["w"] = model.problem
        if before is not None and _unchanged(before, statistics):
            # Most of many models are idle: their counters need not be added up again.
            before.at_ns = monotonic_ns()
            loaded[key] = before
            row |= _IDLE
            return
        now = loaded[key] = _RowCounters(statistics)
        if before is None or before.statistics is not statistics:
            row |= _IDLE
            return
        row |= _change(before, now, max(1, len(row["i"]) and sum(row["i"])))
        row["p"] = _quantiles_ms(statistics)


def _unchanged(before: _RowCounters, statistics: ModelStatistics) -> bool:
    return (
        before.statistics is statistics
        and before.succeeded == statistics.success.count
        and before.failed == statistics.failure.count
        and before.executions == statistics.execution_count
    )


def _change(before: _RowCounters, now: _RowCounters, instances: int) -> Row:
    passed_s = max(1e-3, (now.at_ns - before.at_ns) / _NS_PER_S)
    requests, runs = now.succeeded - before.succeeded, now.executions - before.executions
    return {
        "r": rounded(requests / passed_s),
        "e": rounded((now.failed - before.failed) / passed_s),
        "b": rounded((now.rows - before.rows) / runs) if runs else None,
        "d": rounded((now.queue_ns - before.queue_ns) / requests / 1e6) if requests else None,
        "u": rounded(min(1.0, (now.busy_ns - before.busy_ns) / _NS_PER_S / passed_s / instances), 2),
    }


def _quantiles_ms(statistics: ModelStatistics) -> list[float] | None:
    if statistics.latencies is None:
        return None
    found = statistics.latencies.quantiles_us(QUANTILES)
    return None if math.isnan(found[0]) else [rounded(us / 1000) for us in found]


def rounded(value: float, digits: int = _DIGITS) -> float:
    """``value`` to three significant digits: changes that nobody sees are not sent."""
    if not value or not math.isfinite(value):
        return 0
    places = digits - 1 - math.floor(math.log10(abs(value)))
    found = round(value, places)
    return int(found) if places <= 0 else found

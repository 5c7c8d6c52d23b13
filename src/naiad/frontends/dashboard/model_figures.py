"""The figures of each model version over the last second, from its counters."""

from __future__ import annotations

import math
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from naiad.telemetry.metrics.load import busy_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from naiad.engine.engine import Engine
    from naiad.execution.model.interface import LoadedVersion
    from naiad.telemetry.metrics.model_statistics import ModelStatistics

Row = dict[str, Any]
"""The figures of one version by their short names, which the page's ``store.js`` explains."""

INSTANCE_STATES: Final = ("idle", "busy", "down")
QUANTILES: Final = (0.5, 0.99)
QUANTILES_PER_READ: Final = 24
"""Versions whose quantiles are found anew at a time, which takes some 50 us each; of more, each has its turn."""
STATES_EVERY: Final = 5
"""Of an idle version the states of its instances are read every so many times."""
_DIGITS: Final = 3
_NS_PER_S: Final = 1e9
_IDLE: Final[Row] = {"r": 0, "e": 0, "p": None, "b": None, "d": None, "u": 0}

_Key = tuple[str, int]


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
        self.rows = sum([size * found.compute_infer.count for size, found in statistics.batches.items()])
        self.busy_ns = busy_ns(statistics)

    def is_of(self, statistics: ModelStatistics) -> bool:
        """Whether nothing was counted since."""
        return (
            self.statistics is statistics
            and self.succeeded == statistics.success.count
            and self.failed == statistics.failure.count
            and self.executions == statistics.execution_count
        )


class VersionFigures:
    """Reads the figures of all versions; ``read`` is called once a second while somebody looks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before: dict[_Key, _RowCounters] = {}
        self._instances: dict[_Key, list[int]] = {}
        self._quantiles: dict[_Key, list[float] | None] = {}
        self._reads = self._turn = 0

    def read(self) -> dict[tuple[str, str], Row]:
        """The figures of each version by model and version; "" for a model without a version.

        A version that is not loaded has its state and the reason ("w") only.
        """
        self._reads += 1
        rows = {_key_of(entry): _row_of(entry) for entry in self._engine.index(ready_only=False)}
        before, self._before = self._before, {}
        for model in self._engine.loaded_models():
            row = rows.setdefault((model.name, str(model.version)), {"s": "READY", "w": ""})
            self._fill(row, model, before.get((model.name, model.version)))
        if self._before.keys() != before.keys():
            self._engine.watch_latencies()
            self._instances = {key: found for key, found in self._instances.items() if key in self._before}
        self._add_quantiles(rows)
        return rows

    def forget(self) -> None:
        """Nobody looks any more."""
        self._before = {}
        self._instances = {}
        self._quantiles = {}
        self._engine.watch_latencies_no_more()

    def _fill(self, row: Row, model: LoadedVersion, before: _RowCounters | None) -> None:
        statistics = model.statistics
        key = model.name, model.version
        is_idle = before is not None and before.is_of(statistics)
        if not is_idle or self._reads % STATES_EVERY == 0 or key not in self._instances:
            states = model.instance_states
            self._instances[key] = [states.get(state, 0) for state in INSTANCE_STATES] if states else []
        row["k"] = model.spec.platform or model.spec.backend or "ensemble"
        row["m"] = statistics.memory_bytes
        row["q"] = statistics.pending
        row["i"] = self._instances[key]
        if model.problem:
            row["w"] = model.problem
        if before is not None and is_idle:
            # Most of many models are idle: their counters need not be added up again.
            before.at_ns = monotonic_ns()
            self._before[key] = before
            row |= _IDLE
            return
        now = self._before[key] = _RowCounters(statistics)
        is_first = before is None or before.statistics is not statistics
        row |= _IDLE if before is None or is_first else _change(before, now, max(1, sum(row["i"])))

    def _add_quantiles(self, rows: Mapping[tuple[str, str], Row]) -> None:
        active = [key for key in self._before if rows[key[0], str(key[1])]["r"]]
        first = self._turn if len(active) > QUANTILES_PER_READ else 0
        chosen = (active[first:] + active[:first])[:QUANTILES_PER_READ]
        self._turn = (first + len(chosen)) % max(1, len(active))
        found = {key: _quantiles_ms(self._before[key].statistics) for key in chosen}
        self._quantiles = {key: found[key] if key in found else self._quantiles.get(key) for key in active}
        for key, quantiles in self._quantiles.items():
            rows[key[0], str(key[1])]["p"] = quantiles


def _key_of(entry: Mapping[str, str]) -> tuple[str, str]:
    name = f"{entry['namespace']}/{entry['name']}" if "namespace" in entry else entry["name"]
    return name, entry.get("version", "")


def _row_of(entry: Mapping[str, str]) -> Row:
    return {"s": entry.get("state", ""), "w": entry.get("reason", "")}


def _change(before: _RowCounters, now: _RowCounters, instances: int) -> Row:
    passed_s = max(1e-3, (now.at_ns - before.at_ns) / _NS_PER_S)
    requests, runs = now.succeeded - before.succeeded, now.executions - before.executions
    return {
        "r": rounded(requests / passed_s),
        "e": rounded((now.failed - before.failed) / passed_s),
        "p": None,
        "b": rounded((now.rows - before.rows) / runs) if runs else None,
        "d": rounded((now.queue_ns - before.queue_ns) / requests / 1e6) if requests else None,
        "u": round(min(1.0, (now.busy_ns - before.busy_ns) / _NS_PER_S / passed_s / instances), 2),
    }


def _quantiles_ms(statistics: ModelStatistics) -> list[float] | None:
    if statistics.latencies is None:
        return None
    found = statistics.latencies.quantiles_us(QUANTILES)
    return None if math.isnan(found[0]) else [rounded(us / 1000) for us in found]


def rounded(value: float) -> float:
    """``value`` to three significant digits: changes that nobody sees are not sent. 0 for NaN and infinities."""
    if not math.isfinite(value):
        return 0
    found = float(f"{value:.{_DIGITS}g}")
    return int(found) if found.is_integer() else found

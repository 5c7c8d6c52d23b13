"""Which format is the best, and what its measurement says about batching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from naiad.convert.model_config import Batching
from naiad.convert.results import BatchLevels, FormatResult
from naiad.convert.settings import Strategy

_WORTHWHILE: Final = 1.1
"""How much faster a batch has to be than single rows before requests wait for one another."""
_LONGEST_DELAY_US: Final = 5_000
_DELAY_PART: Final = 0.1
"""Of a batch's own time: how long a request waits for others."""


def choose(results: Sequence[FormatResult], strategy: Strategy, budget_ms: float) -> tuple[str, str]:
    """The name of the best format, and why; an empty name with the reason when there is none."""
    good = [result for result in results if result.is_good and result.is_wanted]
    if not good:
        return "", "no format was made, verified and measured"
    if strategy is Strategy.LATENCY_BUDGET:
        return _within(good, budget_ms)
    best = min(good, key=_keys(strategy))
    return best.target, f"{strategy}: {_figure(best, strategy)}"


def batching_of(measured: BatchLevels, is_batching: bool, budget_ms: float = 0.0) -> Batching:
    """Batching as it was measured: the largest batch that ran, the fastest as the preferred one."""
    if not is_batching:
        return Batching()
    levels = [level for level in measured.levels if not budget_ms or level.p99_ms <= budget_ms] or measured.levels[:1]
    best, largest = max(levels, key=lambda level: level.rate), max(level.batch for level in levels)
    if best.batch < 2 or best.rate < _WORTHWHILE * levels[0].rate:
        return Batching(largest)
    delay = min(int(best.p50_ms * 1000 * _DELAY_PART), _LONGEST_DELAY_US)
    return Batching(largest, (best.batch,), delay)


def _keys(strategy: Strategy) -> Callable[[FormatResult], float]:
    if strategy is Strategy.MIN_LATENCY:
        return lambda result: _measured(result).first.p50_ms
    if strategy is Strategy.SMALLEST:
        return lambda result: result.size_bytes
    return lambda result: -_measured(result).best.rate


def _figure(result: FormatResult, strategy: Strategy) -> str:
    measured = _measured(result)
    if strategy is Strategy.MIN_LATENCY:
        return f"{measured.first.p50_ms:.3g} ms at the median with a batch of {measured.first.batch}"
    if strategy is Strategy.SMALLEST:
        return f"{result.size_bytes / 1e6:.3g} MB"
    return f"{measured.best.rate:.4g} inferences/s with a batch of {measured.best.batch}"


def _within(good: Sequence[FormatResult], budget_ms: float) -> tuple[str, str]:
    found = [
        (level.rate, result.target, level)
        for result in good
        for level in _measured(result).levels
        if level.p99_ms <= budget_ms
    ]
    if not found:
        least = min(level.p99_ms for result in good for level in _measured(result).levels)
        return "", f"no format keeps a p99 of {budget_ms:g} ms; the least is {least:.3g} ms"
    rate, target, level = max(found, key=lambda one: one[:2])
    return target, f"{rate:.4g} inferences/s with a batch of {level.batch} and a p99 of {level.p99_ms:.3g} ms"


def _measured(result: FormatResult) -> BatchLevels:
    assert result.measured is not None, "only measured formats are compared"
    return result.measured

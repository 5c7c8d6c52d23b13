"""A comparison of runs as a table (``-f``) and as JSON (``--json``), for other programs."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

import orjson

from naiad.perf.report.comparison import CAVEAT, METHOD, Comparison, FigureChange, LevelComparison, differences
from naiad.perf.report.figures import is_rate, six_digits, whole_us

SCHEMA: Final = "naiad-perf-comparison"
SCHEMA_VERSION: Final = 1


def comparison_csv(comparison: Comparison) -> str:
    """One row for each run of each level: latencies in microseconds, changes as ratios to the first run."""
    out = io.StringIO()
    rows = [row for one in comparison.levels for row in _rows(comparison, one)]
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["Run"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def comparison_json(comparison: Comparison) -> bytes:
    """What the text says, as values; ``p`` is null where there are too few seconds."""
    plain = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "runs": list(comparison.names),
        "differences": differences(comparison),
        "method": METHOD,
        "caveat": CAVEAT,
        "levels": [_level(comparison, one) for one in comparison.levels],
    }
    return orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE)


def _rows(comparison: Comparison, one: LevelComparison) -> list[dict[str, str]]:
    rows = []
    for run, result in sorted(one.results.items()):
        latency, rate_change, p95_change = result.merged.latency, one.rates.get(run), one.latencies.get(run)
        rows.append(
            {
                "Run": comparison.names[run],
                "Load": "request_rate" if is_rate(one.level) else "concurrency",
                "Level": six_digits(one.level.value),
                "Batch Size": str(one.batch_size),
                "Inferences/Second": six_digits(result.inference_rate),
                **{f"p{percent} latency": str(whole_us(latency.percentile(percent))) for percent in (50, 90, 95, 99)},
                "Rate ratio": six_digits(rate_change.ratio) if rate_change else "",
                "Rate p": _p(rate_change),
                "p95 ratio": six_digits(p95_change.ratio) if p95_change else "",
                "p95 p": _p(p95_change),
            }
        )
    return rows


def _p(change: FigureChange | None) -> str:
    return "" if change is None or change.p is None else six_digits(change.p)


def _level(comparison: Comparison, one: LevelComparison) -> dict[str, Any]:
    runs = [
        {
            "run": comparison.names[run],
            "inference_rate": result.inference_rate,
            "p95_us": result.merged.latency.percentile(95) / 1e3,
            "unstable_reason": result.unstable_reason,
            "rate": _change(one.rates.get(run)),
            "p95": _change(one.latencies.get(run)),
        }
        for run, result in sorted(one.results.items())
    ]
    return {"mode": one.level.mode.value, "value": one.level.value, "batch_size": one.batch_size, "runs": runs}


def _change(change: FigureChange | None) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "ratio": change.ratio,
        "p": change.p,
        "is_significant": change.is_significant,
        "seconds": list(change.sizes),
    }

"""Latency objectives, as options and configurations state them."""

from __future__ import annotations

import pytest

from naiad.options.latency_objective import LatencyObjective, read_objective


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99=20ms", LatencyObjective(0.99, 20_000_000)),
        (" p99.9=1.5s ", LatencyObjective(0.999, 1_500_000_000)),
        ("p50=800us,instances=4", LatencyObjective(0.5, 800_000, 4)),
    ],
)
def test_an_objective_is_read(text: str, expected: LatencyObjective) -> None:
    found = read_objective(text)
    assert found.quantile == pytest.approx(expected.quantile)
    assert (found.limit_ns, found.max_instances) == (expected.limit_ns, expected.max_instances)
    assert read_objective(str(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", "20ms", "p99", "p99=20", "p100=1ms", "p10=1ms", "p99=0.1us", "p99=20ms,", "p99=20ms,instances=0"),
        *("p99=1h", "p99=20ms,instances=100", "p99=20ms;instances=2", "p99=-1ms"),
    ],
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_objective(text)

"""The best format by each strategy, and batching as it was measured."""

from __future__ import annotations

import pytest

from naiad.convert.choose import batching_of, choose
from naiad.convert.model_config import Batching
from naiad.convert.results import BatchLevel, BatchLevels, Conversion, FormatResult
from naiad.convert.settings import Strategy


def result(target: str, size: int, *levels: tuple[int, float, float, float], is_good: bool = True) -> FormatResult:
    """A measured format; a level is batch, rate, p50 and p99 in ms."""
    measured = BatchLevels([BatchLevel(batch, rate, p50, p99, p50) for batch, rate, p50, p99 in levels])
    return FormatResult(
        target, made={"file": f"/{target}"}, verified={"is_good": is_good}, measured=measured, size_bytes=size
    )


FAST = result("openvino", 300, (1, 100, 10, 12), (8, 400, 20, 25))
QUICK = result("onnx", 200, (1, 150, 6, 7), (8, 300, 27, 30))
SMALL = result("onnx-int8-dynamic", 50, (1, 50, 20, 21))
WRONG = result("torchscript-trace", 10, (1, 900, 1, 1), is_good=False)
ALL = (FAST, QUICK, SMALL, WRONG)


@pytest.mark.parametrize(
    ("strategy", "budget", "best"),
    [
        (Strategy.MAX_THROUGHPUT, 0.0, "openvino"),
        (Strategy.MIN_LATENCY, 0.0, "onnx"),
        (Strategy.SMALLEST, 0.0, "onnx-int8-dynamic"),
        (Strategy.LATENCY_BUDGET, 26.0, "openvino"),
        (Strategy.LATENCY_BUDGET, 8.0, "onnx"),
        (Strategy.LATENCY_BUDGET, 1.5, ""),
    ],
)
def test_strategies(strategy: Strategy, budget: float, best: str) -> None:
    assert choose(ALL, strategy, budget)[0] == best


def test_a_budget_that_nothing_keeps_is_explained() -> None:
    assert choose(ALL, Strategy.LATENCY_BUDGET, 1.5)[1] == "no format keeps a p99 of 1.5 ms; the least is 7 ms"


def test_without_a_good_format_there_is_no_best() -> None:
    assert choose((WRONG,), Strategy.SMALLEST, 0) == ("", "no format was made, verified and measured")


def test_batching_is_as_it_was_measured() -> None:
    assert FAST.measured is not None and SMALL.measured is not None
    assert batching_of(FAST.measured, True) == Batching(8, (8,), 2000)
    assert batching_of(FAST.measured, True, 15.0) == Batching(1)
    assert batching_of(SMALL.measured, True) == Batching(1)
    assert batching_of(FAST.measured, False) == Batching()


def test_results_survive_json() -> None:
    import json

    conversion = Conversion("net.py:net", "net", "/work", described={"kind": "torch"}, formats=list(ALL))
    assert Conversion.from_json(json.loads(json.dumps(conversion.as_json()))) == conversion

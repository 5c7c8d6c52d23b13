"""How far two answers are apart."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from naiad.lifecycle.traffic.shadow import difference
from naiad.telemetry.metrics.shadow import ShadowSeries, ShadowStatistics, blocks

INF = float("inf")


def strings(*texts: bytes) -> np.ndarray[Any, Any]:
    return np.array(texts, np.object_)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), 0.0),
        (np.float32([1, 2]), np.float32([1, 2.5]), 0.5),
        (np.float32([math.nan, 1]), np.float32([math.nan, 2]), 1.0),
        (np.float32([math.nan]), np.float32([1]), INF),
        (np.float32([INF]), np.float32([INF]), 0.0),
        (np.float32([INF]), np.float32([-INF]), INF),
        (np.uint8([0]), np.uint8([255]), 255.0),
        (np.int64([2**62]), np.int64([2**62 + 1]), 1.0),
        (np.array([True, False]), np.array([True, True]), 1.0),
        (np.float16([1]), np.float16([1.5]), 0.5),
        (np.ones(2, ml_dtypes.bfloat16), np.full(2, 2, ml_dtypes.bfloat16), 1.0),
        (strings(b"a", b"b"), strings(b"a", b"b"), 0.0),
        (strings(b"a", b"b"), strings(b"a", b"c"), INF),
        (np.float32([1]), np.float64([1]), INF),
        (np.float32([1]), np.float32([[1]]), INF),
        (np.float32([]), np.float32([]), 0.0),
    ],
)
def test_difference(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], wanted: float) -> None:
    assert difference({"y": one}, {"y": other}) == wanted
    assert difference({"y": other}, {"y": one}) == wanted


def test_the_largest_counts_and_other_names_have_none() -> None:
    a, b = np.float32([1]), np.float32([3])
    assert difference({"x": a, "y": a}, {"x": a, "y": b}) == 2.0
    assert difference({"x": a}, {"y": a}) == INF
    assert difference({}, {}) == 0.0


def test_counts_and_metrics() -> None:
    found = ShadowStatistics()
    for apart in (0.0, 0.5, 3.0, INF):
        found.count(apart, 0.5, 1_000_000)
    assert (found.compared, found.differing, found.largest, found.sum) == (4, 2, INF, 3.5)
    page = "".join(blocks([ShadowSeries("m", 2, found)]))
    assert 'naiad_shadow_differing{model="m",version="2"} 2' in page
    assert 'naiad_shadow_difference_bucket{le="0",model="m",version="2"} 1' in page
    assert 'naiad_shadow_difference_bucket{le="1",model="m",version="2"} 2' in page
    assert 'naiad_shadow_difference_bucket{le="+Inf",model="m",version="2"} 4' in page
    assert found.as_json()["largest_difference"] is None
    assert "".join(blocks([])) == ""

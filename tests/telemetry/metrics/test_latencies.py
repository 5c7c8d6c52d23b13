"""The distributions of latencies, and what the page shows of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from naiad.clock import ManualClock
from naiad.options.metric_families import FIRST_RESPONSE, HISTOGRAMS, STAGES
from naiad.telemetry.metrics.host import MachineFigures
from naiad.telemetry.metrics.latencies import Latencies, LatencySettings
from naiad.telemetry.metrics.load import LoadFigures
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.openmetrics import wants_openmetrics
from naiad.telemetry.metrics.page import ModelSeries, PageSettings, render
from naiad.telemetry.metrics.quantiles import WINDOW_NS, QuantileWindow

BOTH = LatencySettings(summaries=True, histograms=True)
MS = 1_000_000


def page(latencies: Latencies, settings: LatencySettings = BOTH, exemplars: bool = False, **series: Any) -> str:
    statistics = ModelStatistics(latencies=latencies)
    shown = PageSettings(cpu=False, distributions=settings)
    one = ModelSeries("m", 1, {"zone": "eu"}, statistics, **series)
    return b"".join(render([one], shown, host=MachineFigures(ManualClock()), exemplars=exemplars)).decode()


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def buckets(family: Any) -> dict[str, float]:
    return {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}


@pytest.mark.parametrize("scale", [1, 40, 2_500, 7_000_000])
def test_quantiles_are_those_of_the_values_within_two_percent(scale: int) -> None:
    values = np.random.default_rng(scale).lognormal(0, 1.5, 20_000) * scale + 2
    window = QuantileWindow()
    for part in np.array_split(values, 7):
        window.add(part, 5)
    shares = (0.0, 0.5, 0.9, 0.99, 1.0)
    expected = np.quantile(values, shares, method="inverted_cdf")
    assert window.quantiles(shares, 5) == pytest.approx(expected, rel=0.02)


def test_values_leave_the_window_after_a_minute() -> None:
    window = QuantileWindow()
    window.add(np.full(1000, 10.0), 0)
    window.add(np.full(10, 500.0), WINDOW_NS * 4 // 5)
    assert window.quantiles((0.5,), WINDOW_NS * 4 // 5)[0] == pytest.approx(10, rel=0.02)
    assert window.quantiles((0.5,), WINDOW_NS)[0] == pytest.approx(500, rel=0.02)
    assert math.isnan(window.quantiles((0.5,), 3 * WINDOW_NS)[0])


def test_histograms_count_each_request_in_its_bucket() -> None:
    latencies = Latencies(BOTH, {HISTOGRAMS[1]: (1000.0, 3000.0)})
    latencies.batch([0, 0, 0], [0, 1 * MS, 2 * MS], 3 * MS, 2 * MS, 100_000, 600_000, 300_000)
    latencies.one(1 * MS, 10_000, 1_000, 2_000, 3_000)
    found = families(page(latencies))
    assert buckets(found["nv_inference_request_duration_histogram_us"]) == {"1000": 1, "3000": 4, "+Inf": 4}
    queue = {s.name: s.value for s in found["nv_inference_queue_duration_histogram_us"].samples}
    assert queue["nv_inference_queue_duration_histogram_us_sum"] == 2000 + 1000 + 0 + 10
    infer = found["nv_inference_compute_infer_duration_histogram_us"]
    assert buckets(infer)["500"] == 1
    assert buckets(infer)["2000"] == 4
    assert set(STAGES) == {n.removeprefix("nv_inference_").removesuffix("_summary_us") for n in found if "summary" in n}


def test_as_many_requests_as_are_noted_are_counted() -> None:
    latencies = Latencies(BOTH, {})
    for _ in range(10_000):
        latencies.one(3, 2, 1, 1, 1)
    assert "nv_inference_request_summary_us_count" in page(latencies)
    counts = {s.value for f in families(page(latencies)).values() for s in f.samples if s.name.endswith("_count")}
    assert counts - {0.0} == {10_000.0}


def test_the_first_response_is_the_only_one_or_the_noted_one() -> None:
    plain, decoupled = Latencies(BOTH, {FIRST_RESPONSE: (1.0, 2.0)}), Latencies(BOTH, {}, is_decoupled=True)
    plain.one(1_500_000, 0, 0, 0, 0)
    plain.failed(300_000)
    decoupled.first(90 * MS)
    decoupled.one(900 * MS, 0, 0, 0, 0)
    decoupled.failed(900 * MS)
    assert buckets(families(page(plain))[FIRST_RESPONSE]) == {"1": 1, "2": 2, "+Inf": 2}
    assert buckets(families(page(decoupled))[FIRST_RESPONSE]) == {"100": 1, "500": 1, "2000": 1, "5000": 1, "+Inf": 1}


def test_summaries_of_the_cache_are_there_for_a_model_that_caches() -> None:
    latencies = Latencies(BOTH, {})
    latencies.cached(9_000, 1_000, 7_000)
    latencies.missed(5_000)
    found = families(page(latencies, is_cached=True))
    for name, value in (("nv_cache_hit_summary_per_model", 7), ("nv_cache_miss_summary_per_model", 5)):
        sums = {s.name: s.value for s in found[name].samples if not s.labels.get("quantile")}
        assert sums == {f"{name}_sum": value, f"{name}_count": 1}
    assert not any(name.startswith("nv_cache") for name in families(page(latencies)))


def test_only_what_was_asked_for_is_kept() -> None:
    for settings, gone in (
        (LatencySettings(summaries=True), "histogram"),
        (LatencySettings(histograms=True), "summary"),
    ):
        latencies = Latencies(settings, {})
        latencies.one(1, 2, 3, 4, 5)
        assert not any(gone in name for name in families(page(latencies, settings)))


def test_openmetrics_has_exemplars_and_the_same_names() -> None:
    latencies = Latencies(BOTH, {})
    latencies.one(4 * MS, 30_000, 40_000, 600_000, 1_000)
    latencies.exemplar("ab" * 16, 1_700_000_000.25, 4 * MS, 30_000, (40_000, 600_000, 1_000))
    text = page(latencies, exemplars=True)
    found = {family.name: family for family in read_openmetrics(text)}
    plain = {s.name for f in text_string_to_metric_families(page(latencies)) if f.type != "counter" for s in f.samples}
    assert plain <= {s.name for f in found.values() for s in f.samples}
    # The parser of the text format adds an ending to counters; here the names are as they are written.
    assert any(s.name == "nv_inference_request_success" for s in found["nv_inference_request_success"].samples)
    marked = [s for s in found["nv_inference_request_duration_histogram_us"].samples if s.exemplar]
    assert [(s.labels["le"], s.exemplar.labels["trace_id"], s.exemplar.value) for s in marked] == [
        ("5000", "ab" * 16, 4000.0)
    ]
    assert "# {" not in page(latencies)


@pytest.mark.parametrize(
    ("accept", "with_exemplars", "without"),
    [
        ("", False, False),
        ("*/*", False, False),
        ("text/plain;version=0.0.4", False, False),
        ("application/openmetrics-text", True, True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1", True, False),
        ("application/openmetrics-text,*/*;q=0.1", True, False),
        ("application/openmetrics-text,text/*;q=0.1", True, False),
        ("application/openmetrics-text,text/plain;q=0", True, True),
        ("application/openmetrics-text;version=1.0.0;q=0.3,text/plain;q=0.4", False, False),
        ("application/openmetrics-text;version=9.9.9", False, False),
        ("application/openmetrics-text;q=x", False, False),
    ],
)
def test_a_scraper_gets_openmetrics_when_it_gains_by_it(accept: str, with_exemplars: bool, without: bool) -> None:
    assert wants_openmetrics(accept, exemplars=True) is with_exemplars
    assert wants_openmetrics(accept, exemplars=False) is without


def test_batch_sizes_are_shown_with_the_reason() -> None:
    statistics = ModelStatistics(left={"full": {8: 3}, "delay": {2: 5, 3: 1}})
    one = ModelSeries("m", 1, {}, statistics)
    found = families(b"".join(render([one], PageSettings(cpu=False), host=MachineFigures(ManualClock()))).decode())
    sizes = {(s.labels["reason"], s.name, s.labels.get("le")): s.value for s in found["naiad_batch_size"].samples}
    assert sizes["delay", "naiad_batch_size_bucket", "2"] == 5
    assert sizes["delay", "naiad_batch_size_bucket", "4"] == 6
    assert sizes["delay", "naiad_batch_size_sum", None] == 13
    assert sizes["full", "naiad_batch_size_bucket", "4"] == 0
    assert sizes["full", "naiad_batch_size_count", None] == 3


def test_the_load_is_the_busy_share_and_the_waiting_batches() -> None:
    statistics, load = ModelStatistics(), LoadFigures()
    assert load.read(statistics, 0) == 0
    assert load.read(statistics, 2) == 0
    # More than there was time for since: the share is bounded.
    statistics.count_execution(4, 0, 3600 * 10**9, 0)
    assert load.read(statistics, 2) == 1
    statistics.pending = 12
    assert load.read(statistics, 2) == pytest.approx(1 + 12 / 4 / 2)

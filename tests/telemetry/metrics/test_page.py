"""The page of metrics, read back with the parser of the official client library."""

from __future__ import annotations

import os

import pytest
from prometheus_client.parser import text_string_to_metric_families

from naiad.clock import ManualClock
from naiad.telemetry.metrics.host import MachineFigures
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.page import CONTENT_TYPE, ModelSeries, PageSettings, render
from naiad.version import __version__

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

COUNTERS = {
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
}
GAUGES = {"nv_inference_pending_request_count", "nv_model_load_duration_secs"}
MACHINE = {"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"}
PINNED = {"nv_pinned_memory_pool_total_bytes", "nv_pinned_memory_pool_used_bytes"}
OURS = {"naiad_build_info", "naiad_process_resident_memory_bytes", "naiad_process_cpu_seconds"}


def page(*series: ModelSeries, cpu: bool = False, latencies: bool = True) -> str:
    return b"".join(
        render(series, PageSettings(cpu=cpu, latencies=latencies), host=MachineFigures(ManualClock()))
    ).decode()


def names(text: str) -> set[str]:
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


def samples(text: str) -> Samples:
    # The parser adds the `_total` of its own convention to counters.
    return {
        (s.name.removesuffix("_total"), frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def busy() -> ModelStatistics:
    statistics = ModelStatistics(load_seconds=1.25, pending=3)
    statistics.count_execution(8, 10_000, 2_000_000, 30_000)
    statistics.count_success(4, 8, 9_999_999, 4_000, 10_000, 2_000_000, 30_000)
    statistics.count_failure("REJECTED", 5_000)
    statistics.count_failure("BACKEND", 5_000)
    statistics.count_failure("BACKEND", 5_000)
    return statistics


def test_pinned_memory_is_none_without_a_gpu() -> None:
    got = samples(page())
    assert {got[name, frozenset()] for name in PINNED} == {0}


def test_values_are_those_of_the_counters() -> None:
    got = samples(page(ModelSeries("mlp", 2, {}, busy())))
    labels = frozenset({("model", "mlp"), ("version", "2")})
    expected = {
        "nv_inference_request_success": 4,
        "nv_inference_count": 8,
        "nv_inference_exec_count": 1,
        "nv_inference_pending_request_count": 3,
        "nv_model_load_duration_secs": 1.25,
        "nv_inference_request_duration_us": 9_999,
        "nv_inference_queue_duration_us": 4,
        "nv_inference_compute_input_duration_us": 40,
        "nv_inference_compute_infer_duration_us": 8_000,
        "nv_inference_compute_output_duration_us": 120,
    }
    assert {name: got[name, labels] for name in expected} == expected
    failures = {
        reason: got["nv_inference_request_failure", labels | {("reason", reason)}] for reason in busy().failures
    }
    assert failures == {"OTHER": 0, "REJECTED": 1, "CANCELED": 0, "BACKEND": 2}


def test_a_new_model_has_all_its_series_at_zero() -> None:
    text = page(ModelSeries("new", 1, {}, ModelStatistics()))
    assert names(text) == COUNTERS | GAUGES | OURS | PINNED
    assert text.count('model="new"') == len(COUNTERS | GAUGES) + 3
    assert all(value == 0 for (name, _), value in samples(text).items() if name.startswith("nv_"))


def test_every_family_has_its_help_and_type_once_before_its_samples() -> None:
    text = page(ModelSeries("a", 1, {}, busy()), ModelSeries("b", 1, {}, busy()), cpu=True)
    for name in names(text):
        kind = "counter" if name in COUNTERS or name.endswith("cpu_seconds") else "gauge"
        assert text.count(f"# TYPE {name} {kind}\n") == 1
        assert text.count(f"# HELP {name} ") == 1
        assert text.index(f"# HELP {name} ") < text.index(f"# TYPE {name} ") < text.index(f"\n{name}")
    assert text.endswith("\n")
    assert CONTENT_TYPE == "text/plain; charset=utf-8"


def test_two_versions_are_two_series() -> None:
    got = samples(page(ModelSeries("m", 1, {}, busy()), ModelSeries("m", 2, {}, ModelStatistics())))
    counts = [got["nv_inference_count", frozenset({("model", "m"), ("version", v)})] for v in ("1", "2")]
    assert counts == [8, 0]


def test_labels_are_alphabetical_and_tags_are_marked() -> None:
    text = page(ModelSeries("m", 1, {"zone": "eu", "cost-centre": "7"}, ModelStatistics()))
    assert 'nv_inference_count{_cost_centre="7",_zone="eu",model="m",version="1"} 0\n' in text
    assert '{_cost_centre="7",_zone="eu",model="m",reason="OTHER",version="1"} 0\n' in text


@pytest.mark.parametrize("value", ['quote"d', "back\\slash", "two\nlines", "ünïcode", "}{,="])
def test_label_values_come_back_as_they_were(value: str) -> None:
    got = samples(page(ModelSeries(value, 1, {"tag": value}, ModelStatistics())))
    assert ("nv_inference_count", frozenset({("model", value), ("version", "1"), ("_tag", value)})) in got


def test_durations_can_be_left_out() -> None:
    got = names(page(ModelSeries("m", 1, {}, busy()), latencies=False))
    assert got == {n for n in COUNTERS if not n.endswith("_us")} | GAUGES | OURS | PINNED


def test_without_models_the_page_still_parses() -> None:
    text = page(cpu=True)
    assert names(text) == MACHINE | OURS | PINNED
    assert samples(text)["naiad_build_info", frozenset({("version", __version__)})] == 1


def test_figures_of_the_machine_are_plausible() -> None:
    got = {name: value for (name, _), value in samples(page(cpu=True)).items()}
    assert 0 <= got["nv_cpu_utilization"] <= 1
    assert 0 < got["nv_cpu_memory_used_bytes"] < got["nv_cpu_memory_total_bytes"]
    assert 1_000_000 < got["naiad_process_resident_memory_bytes"] < got["nv_cpu_memory_total_bytes"]
    assert 0 < got["naiad_process_cpu_seconds"] <= sum(os.times()[:2]) + 1


def test_a_figure_of_the_machine_is_kept_for_its_interval() -> None:
    clock = ManualClock(now_ns=5)
    figures = MachineFigures(clock)
    first = figures.machine(2000)
    clock.advance(1_999_999_999)
    assert figures.machine(2000) is first
    clock.advance(1)
    assert figures.machine(2000) is not first


def test_the_load_is_that_of_the_time_since_the_last_sample() -> None:
    figures = MachineFigures(ManualClock())
    figures.machine(0)
    before = os.times()
    while os.times().elapsed - before.elapsed < 0.3:  # keep one processor busy for a few ticks of its clock
        pass
    assert figures.machine(0).load > 0.5 / (os.cpu_count() or 1)


def test_pieces_stay_small_with_many_models() -> None:
    series = [ModelSeries(f"model_{number}", 1, {"team": "a"}, busy()) for number in range(500)]
    parts = list(render(series, PageSettings(cpu=False), host=MachineFigures(ManualClock())))
    assert max(map(len, parts)) < 1 << 15
    assert len(samples(b"".join(parts).decode())) > 500 * 10

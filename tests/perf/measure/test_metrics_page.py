"""What the generator reads from a metrics page, and what it makes of it."""

from __future__ import annotations

import pytest

from naiad.perf.measure.metrics_page import MetricsSample, read_metrics
from naiad.perf.measure.usage import note_seconds, usage_between
from naiad.perf.results import Second, Window

SECOND = 1_000_000_000
PAGE = b"""# HELP naiad_process_cpu_seconds Processor time that the server used
# TYPE naiad_process_cpu_seconds counter
naiad_process_cpu_seconds 12.5
naiad_process_resident_memory_bytes 73400320
nv_cpu_utilization 0.42
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.75
nv_gpu_utilization{gpu_uuid="GPU-2"} 0.25
nv_gpu_power_usage{gpu_uuid="GPU-1"} 190.5
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1000
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 4000
nv_inference_count{model="m",version="1"} 5
"""


def test_a_page_is_read() -> None:
    found = read_metrics(PAGE, 7)
    assert (found.at_ns, found.cpu_seconds, found.rss_bytes, found.machine_load) == (7, 12.5, 73400320, 0.42)
    assert found.gpu_utilization == {"GPU-1": 0.75, "GPU-2": 0.25}
    assert found.gpu_power_watts == {"GPU-1": 190.5}
    assert (found.gpu_memory_used_bytes, found.gpu_memory_total_bytes) == ({"GPU-1": 1000}, {"GPU-1": 4000})


def test_a_page_of_another_server_says_less() -> None:
    found = read_metrics(b"process_cpu_seconds_total 3\nprocess_resident_memory_bytes 5e6\nnv_gpu_utilization x\n", 0)
    assert (found.cpu_seconds, found.rss_bytes) == (3, 5_000_000)
    assert read_metrics(b"", 0).cpu_seconds is None


def sample(second: float, cpu: float | None, rss: int = 100, gpu: float = 0.5) -> MetricsSample:
    return MetricsSample(int(second * SECOND), cpu, rss, gpu_utilization={"g": gpu})


def test_usage_is_a_mean_between_looks_and_the_greatest_size() -> None:
    usage = usage_between([sample(0, 1.0, 100, 0.2), sample(1, 2.0, 300), sample(2, 4.0, 200, 0.8)], "page", 1000)
    assert (usage.source, usage.cpu_cores, usage.cpu_us_per_request) == ("page", 1.5, 3000)
    assert usage.rss_bytes == 300
    assert usage.gpu_utilization == {"g": pytest.approx(0.5)}


def test_usage_of_one_look_has_no_rate() -> None:
    assert usage_between([sample(0, 1.0)], "page", 5).cpu_cores is None
    assert usage_between([], "page", 5).source == ""


def test_seconds_get_the_looks_around_them() -> None:
    window = Window(0, 2 * SECOND, seconds=[Second(0.0), Second(1.0)])
    note_seconds(window, [sample(10, 5.0), sample(11, 5.5, 200), sample(12, 7.5, 300)], 10 * SECOND)
    assert [second.cpu_cores for second in window.seconds] == [0.5, 2.0]
    assert [second.rss_bytes for second in window.seconds] == [200, 300]

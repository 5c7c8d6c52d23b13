"""The table of ``-f``. Its columns were taken from the files of the reference's perf_analyzer 2.51."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from naiad.perf.report.csv_file import write_csv
from naiad.perf.results import LoadMode, Report, Usage
from naiad.perf.settings import MeasureSettings, OutputSettings, PerfSettings
from support.perf_reports import level, parts, report, window

LATENCIES = [200 + number for number in range(100)]
SERVER = "Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output"
VERBOSE = PerfSettings(output=OutputSettings(verbose_csv=True))


def table(found: Report, folder: Path, settings: PerfSettings | None = None) -> list[str]:
    files = write_csv(found, settings or PerfSettings(), folder / "table.csv")
    assert files == [folder / "table.csv"]
    return files[0].read_text().splitlines()


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


def test_the_reference_s_columns_sorted_by_rate(tmp_path: Path) -> None:
    found = report(level(2, window(LATENCIES, 0.7, server=parts())), level(8, window(LATENCIES, 2, server=parts())))
    assert table(found, tmp_path) == [
        f"Concurrency,Inferences/Second,Client Send,{SERVER},Client Recv,"
        "p50 latency,p90 latency,p95 latency,p99 latency",
        "8,50,20,134,30,4,50,6,5,250,288,294,298",
        "2,142.857,20,134,30,4,50,6,5,250,288,294,298",
    ]


def test_no_figures_of_the_server(tmp_path: Path) -> None:
    found = report(level(50.5, window(LATENCIES), LoadMode.REQUEST_RATE))
    assert table(found, tmp_path, PerfSettings(measure=MeasureSettings(percentile=77))) == [
        "Request Rate,Inferences/Second,Client Send,Client Recv,"
        "p50 latency,p77 latency,p90 latency,p95 latency,p99 latency",
        "50.5,50,20,5,250,276,288,294,298",
    ]


def test_a_decoupled_model(tmp_path: Path) -> None:
    found = report(level(1, window(LATENCIES, responses=300)), is_decoupled=True)
    assert table(found, tmp_path)[0].startswith("Concurrency,Inferences/Second,Response Throughput,Client Send,")
    assert table(found, tmp_path)[1].startswith("1,50,150,20,")


def test_a_cache(tmp_path: Path) -> None:
    cached = parts(
        request=12,
        queue=8,
        given=0,
        infer=0,
        output=0,
        more={"cache_hits": 99, "cache_misses": 1, "cache_hit_ns": 297_000, "cache_miss_ns": 142_000},
    )
    header, row = table(report(level(1, window(LATENCIES, server=cached))), tmp_path)
    assert ",Server Compute Output,Server Cache Hit,Server Cache Miss,Client Recv," in header
    assert row == "1,50,20,212,8,0,0,0,3,142,5,250,288,294,298"


def test_verbose_columns(tmp_path: Path) -> None:
    usage = Usage(
        cpu_cores=0.93,
        cpu_us_per_request=212.4321,
        rss_bytes=191_000_000,
        gpu_utilization={"GPU-a": 0.25, "GPU-b": 0.5},
        gpu_power_watts={"GPU-a": 71.25},
        gpu_memory_used_bytes={"GPU-a": 1234567890},
        gpu_memory_total_bytes={"GPU-a": 17071734784},
    )
    found = report(level(1, window(LATENCIES, usage=usage)), level(2, window(LATENCIES, 1)))
    header, first, second = table(found, tmp_path, VERBOSE)
    more = "p99 latency,Avg latency,request/response,response wait"
    gpus = "Avg GPU Utilization,Avg GPU Power Usage,Max GPU Memory Usage,Total GPU Memory"
    assert header.endswith(f"{more},{gpus},Server CPU cores,Server CPU usec/request,Max server RSS bytes")
    assert first.endswith(
        ",298,249,25,224,GPU-a:0.25;GPU-b:0.5;,GPU-a:71.25;,GPU-a:1234567890;,GPU-a:17071734784;,0.93,212.432,191000000"
    )
    assert second.endswith(",298,249,25,224,,,,,,,")


def test_verbose_columns_without_metrics_and_with_a_percentile(tmp_path: Path) -> None:
    settings = PerfSettings(
        measure=MeasureSettings(percentile=95, collect_metrics=False), output=OutputSettings(verbose_csv=True)
    )
    header = table(report(level(1, window(LATENCIES))), tmp_path, settings)[0]
    assert header.endswith(",p99 latency,request/response,response wait")


def test_one_file_for_each_model_of_an_ensemble(tmp_path: Path) -> None:
    inner = parts("chained", more={"composing": [parts("a"), parts("b", 200)]})
    outer = parts("nested", request=300, more={"composing": [inner, parts("b", 200)]})
    files = write_csv(report(level(1, window(LATENCIES, server=outer))), PerfSettings(), tmp_path / "table.csv")
    names = ["table.csv", "chained_v1.table.csv", "a_v1.table.csv", "b_v1.table.csv"]
    assert [file.name for file in files] == names
    assert {file.parent for file in files} == {tmp_path}
    assert files[3].read_text() == (
        f"Concurrency,Inferences/Second,Client Send,{SERVER},Client Recv\n1,100,0,10,30,4,50,6,0\n"
    )


def test_levels_that_found_nothing_have_no_row(tmp_path: Path) -> None:
    over = level(3, window(LATENCIES), is_within_limit=False)
    assert len(table(report(level(1, window([])), level(2, window(LATENCIES)), over), tmp_path)) == 2
    assert table(report(level(1, window([]))), tmp_path) == []


def test_the_time_outside_the_server_is_never_negative(tmp_path: Path) -> None:
    slow = report(level(1, window(LATENCIES, server=parts(request=900, infer=800))))
    table(slow, tmp_path)
    assert rows(tmp_path / "table.csv")[0]["Network+Server Send/Recv"] == "0"


READS = """
import json, pathlib, shutil, sys
from model_analyzer.perf_analyzer.perf_analyzer import PerfAnalyzer

class Config:
    def __init__(self, file):
        self.settings = {"model-name": "simple", "latency-report-file": file}
    def models_name(self):
        return "simple"
    def model_run_configs(self):
        return [self]
    def perf_config(self):
        return self
    def to_cli_string(self, exclude_model_name=False):
        return sys.argv[1] + " " + self.settings["latency-report-file"]
    def __getitem__(self, name):
        return self.settings[name]

analyzer = PerfAnalyzer("cp", Config("read.csv"), max_retries=1, timeout=20, max_cpu_util=10000)
metrics = PerfAnalyzer.get_perf_metrics() + PerfAnalyzer.get_gpu_metrics()
assert analyzer.run(metrics) == PerfAnalyzer.PA_SUCCESS, analyzer.output()
found = {record.tag: record.value() for record in analyzer.get_perf_records()["simple"]}
gpus = {f"{record.tag} {record.device_uuid()}": record.value() for record in analyzer.get_gpu_records()}
print(json.dumps(found | gpus))
"""


@pytest.mark.slow
def test_the_reference_s_model_analyzer_reads_it(tmp_path: Path) -> None:
    """``NAIAD_MODEL_ANALYZER_PYTHON`` names a Python that has triton-model-analyzer."""
    python = os.environ.get("NAIAD_MODEL_ANALYZER_PYTHON")
    if not python:
        pytest.skip("NAIAD_MODEL_ANALYZER_PYTHON does not name a Python with triton-model-analyzer")
    usage = Usage(
        cpu_cores=1,
        gpu_utilization={"GPU-a": 0.25},
        gpu_power_watts={"GPU-a": 71.25},
        gpu_memory_used_bytes={"GPU-a": 1234 * 10**6},
        gpu_memory_total_bytes={"GPU-a": 17071 * 10**6},
    )
    found = report(level(4, window(LATENCIES, server=parts(), usage=usage)))
    write_csv(found, VERBOSE, tmp_path / "table.csv")
    run = subprocess.run(
        [python, "-c", READS, "table.csv"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    read = json.loads(run.stdout.splitlines()[-1])
    assert read == {
        "perf_latency_avg": 0.249,
        "perf_latency_p90": 0.288,
        "perf_latency_p95": 0.294,
        "perf_latency_p99": 0.298,
        "perf_throughput": 50,
        "perf_client_send_recv": 0.025,
        "perf_client_response_wait": 0.224,
        "perf_server_queue": 0.03,
        "perf_server_compute_infer": 0.05,
        "perf_server_compute_input": 0.004,
        "perf_server_compute_output": 0.006,
        "gpu_utilization GPU-a": 25,
        "gpu_power_usage GPU-a": 71.25,
        "gpu_used_memory GPU-a": 1234,
        "gpu_free_memory GPU-a": 15837,
    }

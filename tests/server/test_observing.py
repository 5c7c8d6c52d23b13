"""Metrics, statistics and the log of a whole server agree with what was asked of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from naiad.testing import RunningServer, run_to_end, serving
from support.served_models import LOOK_UP, identity, numbers, write_model

DEFAULT_LINE = re.compile(r'[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \w+\.py:\d+\] ".*"')
ISO_LINE = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [IWE] \d+ \w+\.py:\d+\] ".*"')
TABLE = "+|"
LATENCIES = ("request", "queue", "compute_input", "compute_infer", "compute_output")


def metrics(server: RunningServer) -> dict[tuple[str, str, str], float]:
    """Each value by metric, model and reason."""
    page = server.request("GET", "/metrics", port=server.metrics)
    assert (page.status, page.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    found = {}
    for family in text_string_to_metric_families(page.body.decode()):
        for sample in family.samples:
            # The parser gives every counter the ending that newer formats ask for.
            found[
                sample.name.removesuffix("_total"), sample.labels.get("model", ""), sample.labels.get("reason", "")
            ] = sample.value
    return found


def look_up(index: int, request_id: str = "") -> dict[str, object]:
    tensor = {"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [index]}
    return {"inputs": [tensor], **({"id": request_id} if request_id else {})}


@pytest.mark.slow
def test_metrics_and_statistics_agree(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "same", identity(max_batch_size=4))
    write_model(tmp_path / "models", "look_up", "max_batch_size: 4", graph=LOOK_UP)
    with serving(tmp_path / "log", tmp_path / "models") as server:
        before = metrics(server)
        assert before["nv_inference_request_success", "same", ""] == 0
        assert before["nv_inference_request_failure", "same", "OTHER"] == 0
        for rows in (1, 3, 4):
            assert server.infer("same", numbers([1] * rows, [rows, 1])).status == 200
        assert server.infer("look_up", look_up(2)).status == 200
        for _ in range(2):
            assert server.infer("look_up", look_up(9)).status == 500
        assert server.infer("same", numbers([1, 2, 3], [1, 1])).status == 400
        after, same, table = metrics(server), server.statistics("same"), server.statistics("look_up")

        assert after["nv_inference_request_success", "same", ""] == same["inference_stats"]["success"]["count"] == 3
        assert after["nv_inference_count", "same", ""] == same["inference_count"] == 8
        assert after["nv_inference_exec_count", "same", ""] == same["execution_count"] == 3
        assert {b["batch_size"]: b["compute_infer"]["count"] for b in same["batch_stats"]} == {1: 1, 3: 1, 4: 1}
        assert after["nv_inference_pending_request_count", "same", ""] == 0
        for name in LATENCIES:
            ns = same["inference_stats"]["success" if name == "request" else name]["ns"]
            assert after[f"nv_inference_{name}_duration_us", "same", ""] == ns // 1000
        stages = sum(same["inference_stats"][n]["ns"] for n in ("queue", *LATENCIES[2:]))
        assert 0 < stages <= same["inference_stats"]["success"]["ns"]

        failures = {reason: v for (n, m, reason), v in after.items() if m == "look_up" and n.endswith("_failure")}
        assert sum(failures.values()) == failures["BACKEND"] == table["inference_stats"]["fail"]["count"] == 2
        assert after["nv_inference_request_success", "look_up", ""] == 1
        # Batches have series by the reason for which they left, so only once some did.
        assert set(before) == {key for key in after if not key[0].startswith("naiad_batch_size")}


def test_log_lines_and_request_ids(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "look_up", "", graph=LOOK_UP)
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert server.infer("look_up", look_up(99, request_id="nine\nty")).status == 500
        server.wait_for("nine")
        assert "[request id: nine\\\\nty] " in server.log or "[request id: nine\\nty] " in server.log
        lines = [line for line in server.log.splitlines() if line[0] not in TABLE]
    tables = ("+-", "| ")
    assert [line for line in lines if not DEFAULT_LINE.fullmatch(line) and not line.startswith(tables)] == []


@pytest.mark.slow
def test_iso_lines_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    options = ("--log-format", "ISO8601", "--log-file", tmp_path / "naiad.log", "--http-port", "0", "--id", "x")
    code, log = run_to_end(tmp_path / "log", tmp_path / "models", *options, "--http-address", "192.0.2.1")
    assert (code, log) == (1, "")
    lines = [line for line in (tmp_path / "naiad.log").read_text().splitlines() if line[0] not in TABLE]
    assert lines
    assert [line for line in lines if not ISO_LINE.fullmatch(line)] == []
    assert "192.0.2.1" in lines[-1]


@pytest.mark.parametrize(
    "option", ["--metrics-config=histogram_latencies=false", "--metrics-config=histogram_latencies=true"]
)
def test_a_program_that_passes_on_the_header_of_prometheus_can_read_the_metrics(tmp_path: Path, option: str) -> None:
    """KServe's aggregator asks with the header of Prometheus, and reads the text format alone."""
    write_model(tmp_path / "models", "same", identity())
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
    with serving(tmp_path / "log", tmp_path / "models", option) as server:
        page = server.request("GET", "/metrics", headers=(("Accept", accept),), port=server.metrics)
    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    types = {line.split()[-1] for line in page.body.decode().splitlines() if line.startswith("# TYPE ")}
    assert "counter" in types
    assert types <= {"counter", "gauge", "histogram", "summary"}


@pytest.mark.slow
def test_metrics_can_be_off(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with serving(tmp_path / "log", tmp_path / "models", "--allow-metrics=false") as server:
        assert server.metrics == 0
        assert "Metrics Service" not in server.log
        assert server.get("/metrics").status == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "gone"),
    [
        ("--allow-cpu-metrics=false", "nv_cpu_utilization"),
        ("--metrics-config=counter_latencies=false", "nv_inference_queue_duration_us"),
    ],
)
def test_parts_of_the_metrics_can_be_off(tmp_path: Path, option: str, gone: str) -> None:
    write_model(tmp_path / "models", "same", identity())
    with serving(tmp_path / "log", tmp_path / "models", option) as server:
        names = {name for name, _, _ in metrics(server)}
    assert gone not in names
    assert "nv_inference_request_success" in names


@pytest.mark.slow
def test_metrics_and_http_on_ipv6(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    options = ("--http-address", "ipv6:[::1]", "--http-port", "0", "--metrics-port", "0", "--grpc-port", "0")
    with serving(tmp_path / "log", tmp_path / "models", *options, ports=False) as server:
        server.host = "::1"
        assert server.get("/v2/health/live").status == 200
        assert metrics(server)

"""The metrics port: what it answers, and that its numbers are those of the statistics."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from naiad.frontends.metrics.page import MetricsApplication
from naiad.telemetry.metrics.page import PageSettings
from naiad.testing import write_model
from support.http_application import TEXT, Answer, House, Peer, identity_config, play, write_look_up

CONFIG = identity_config(("0", "TYPE_FP32", "[ 1 ]"), more="max_batch_size: 8 dynamic_batching { }")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "m", CONFIG)
    write_look_up(tmp_path)
    return tmp_path


def application(house: House, latencies: bool = True, cpu: bool = False) -> MetricsApplication:
    return MetricsApplication(house.engine, PageSettings(cpu, latencies, 1000))


def samples(answer: Answer) -> dict[tuple[str, str, str], float]:
    """Values by name, model and reason ("" without)."""
    assert answer.status == 200
    assert answer.type.startswith("text/plain")
    families = text_string_to_metric_families(answer.body.decode())
    return {
        (s.name, s.labels.get("model", ""), s.labels.get("reason", "")): s.value for f in families for s in f.samples
    }


@pytest.mark.parametrize(
    ("method", "target", "status", "has_page"),
    [
        ("GET", "/metrics", 200, True),
        ("GET", "/metrics/", 200, True),
        ("GET", "/metrics?x=y", 200, True),
        ("GET", "/", 200, False),
        ("GET", "/v2/health/live", 200, False),
        ("GET", "/metrics/x", 200, False),
        ("POST", "/metrics", 405, False),
    ],
)
def test_paths_and_methods(repository: Path, method: str, target: str, status: int, has_page: bool) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        with house.peer(application(house)) as metrics:
            answer = await metrics.ask(method, target)
            assert answer.status == status
            if status == 405:
                assert (answer.type, answer.error) == (TEXT, "Method Not Allowed")
                assert answer.headers["Allow"] == "GET"
            else:
                assert (b"nv_inference_request_success" in answer.body) is has_page
                assert has_page or answer.body == b""

    play(repository, scenario)


def floats(rows: int) -> dict[str, object]:
    return {"inputs": [{"name": "INPUT0", "shape": [rows, 1], "datatype": "FP32", "data": [1] * rows}]}


def index(value: int) -> dict[str, object]:
    return {"inputs": [{"name": "index", "shape": [1, 1], "datatype": "INT64", "data": [value]}]}


def test_the_numbers_are_those_of_the_statistics(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        with house.peer(application(house)) as metrics:
            before = samples(await metrics.ask("GET", "/metrics"))
            assert before["nv_inference_request_success_total", "m", ""] == 0
            for rows in (1, 3, 2):
                assert (await peer.infer("m", floats(rows))).status == 200
            assert (await peer.infer("look_up", index(1))).status == 200
            assert (await peer.infer("look_up", index(50))).status == 500
            found = samples(await metrics.ask("GET", "/metrics"))
            statistics = (await peer.ask("GET", "/v2/models/stats")).json["model_stats"]
        for model in statistics:
            name, times = model["name"], model["inference_stats"]
            expected = {
                "nv_inference_request_success_total": times["success"]["count"],
                "nv_inference_count_total": model["inference_count"],
                "nv_inference_exec_count_total": model["execution_count"],
                "nv_inference_request_duration_us_total": times["success"]["ns"] // 1000,
                "nv_inference_queue_duration_us_total": times["queue"]["ns"] // 1000,
                "nv_inference_compute_infer_duration_us_total": times["compute_infer"]["ns"] // 1000,
                "nv_inference_pending_request_count": 0,
            }
            assert {key: found[key, name, ""] for key in expected} == expected
        assert found["nv_inference_count_total", "m", ""] == 6
        assert found["nv_inference_request_failure_total", "look_up", "BACKEND"] == 1
        assert found["nv_inference_request_failure_total", "look_up", "OTHER"] == 0
        assert found["nv_inference_exec_count_total", "look_up", ""] == 2

    play(repository, scenario)


@pytest.mark.parametrize("latencies", [True, False])
@pytest.mark.parametrize("cpu", [True, False])
def test_what_is_shown_can_be_chosen(repository: Path, latencies: bool, cpu: bool) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        with house.peer(application(house, latencies, cpu)) as metrics:
            names = {name for name, _, _ in samples(await metrics.ask("GET", "/metrics"))}
        assert ("nv_inference_queue_duration_us_total" in names) is latencies
        assert ("nv_cpu_utilization" in names) is cpu

    play(repository, scenario)

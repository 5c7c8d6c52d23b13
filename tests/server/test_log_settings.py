"""The log's settings, changed while the server runs: what they do, and what is refused."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving, start_server, wait_until
from support.served_models import identity, numbers, write_model

DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    write_model(tmp_path / "models", "same", identity())
    with serving(tmp_path / "log", tmp_path / "models", "--model-control-mode=explicit") as running:
        yield running


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for the tests that must not change it."""
    folder = tmp_path_factory.mktemp("unchanged")
    write_model(folder / "models", "same", identity())
    with serving(folder / "log", folder / "models") as running:
        yield running


def set_log(server: RunningServer, **settings: object) -> dict[str, object]:
    answer = server.post("/v2/logging", settings)
    assert answer.status == 200, answer.body
    return dict(answer.json())


def load(server: RunningServer) -> None:
    """Something that makes lines of every kind: a load is an information, an unknown model an error."""
    assert server.post("/v2/repository/models/same/load", {}).status == 200
    assert server.post("/v2/repository/models/same/unload", {}).status == 200


def test_levels_and_format_take_effect_at_once(server: RunningServer) -> None:
    assert server.get("/v2/logging").json() == DEFAULTS
    assert set_log(server, log_info=False) == DEFAULTS | {"log_info": False}
    load(server)
    assert "successfully loaded 'same'" not in server.log
    set_log(server, log_info=True, log_format="ISO8601")
    load(server)
    server.wait_for("successfully loaded 'same'")
    line = next(line for line in server.log.splitlines() if "successfully loaded" in line)
    assert line[4] == line[7] == "-" and line[19:22] == "Z I"


@pytest.mark.slow
def test_the_verbose_level_starts_and_ends_the_lines_about_requests(server: RunningServer) -> None:
    """Also on a connection whose heads are known already."""
    with tritonclient.http.InferenceServerClient(server.url) as client:
        for _ in range(3):
            assert client.is_server_live()
        assert "HTTP request" not in server.log
        client.update_log_settings({"log_verbose_level": 1})
        assert client.is_server_live()
        server.wait_for("HTTP request: GET /v2/health/live")
        assert client.get_log_settings()["log_verbose_level"] == 1
        client.update_log_settings({"log_verbose_level": 0})
        before = server.log.count("health/live")
        assert client.is_server_live()
        assert client.get_log_settings() == DEFAULTS
        assert server.log.count("health/live") == before


@pytest.mark.slow
def test_grpc_changes_the_same_settings(server: RunningServer) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.update_log_settings({"log_verbose_level": 2, "log_warning": False})
        found = client.get_log_settings(as_json=True)["settings"]
        assert found["log_verbose_level"] == {"uint32_param": 2}
        assert found["log_warning"] == {"bool_param": False}
        assert server.get("/v2/logging").json() == DEFAULTS | {"log_verbose_level": 2, "log_warning": False}
        with pytest.raises(InferenceServerException, match="log file location can not be updated"):
            client.update_log_settings({"log_file": "elsewhere"})


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b'{"log_info": false, "log_format": 5}', 400, "expect string for 'log_format'"),
        (b'{"log_info": false, "log_verbose_level": true}', 400, "expect unsigned integer for 'log_verbose_level'"),
        (b'{"log_info": false, "log_verbose_level": 4294967296}', 400, "from 0 to 4294967295"),
        (b'{"log_info": false, "log_error": "no"}', 400, "expect boolean for 'log_error'"),
        (b'{"log_info": false, "log_file": ""}', 501, "log file location can not be updated"),
        (b"[]", 400, "expected a JSON object"),
        (b'{"a": "' + b"x" * 65536 + b'"}', 400, "expected a JSON object of up to 65536 bytes"),
    ],
)
def test_a_refused_change_changes_nothing(unchanged: RunningServer, body: bytes, status: int, text: str) -> None:
    answer = unchanged.post("/v2/logging", body)
    assert answer.status == status
    assert text in answer.error
    assert unchanged.get("/v2/logging").json() == DEFAULTS


def test_json_in_a_file_that_is_renamed_and_opened_again(tmp_path: Path) -> None:
    # With a delay: a model that runs on the loop makes no batches.
    write_model(tmp_path / "models", "same", identity(max_batch_size=4, delay_ms=1))
    path = tmp_path / "naiad.log"
    path.touch()
    options = ("--log-format=json", "--log-file", path, "--log-verbose=3", "--log-file-max-bytes", 1 << 20)
    server = start_server(tmp_path / "out", tmp_path / "models", *options)
    server.log_file = path
    try:
        server.wait_ready()
        assert server.infer("same", numbers([1, 2], [2, 1], id="seven")).status == 200
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            given = tritonclient.grpc.InferInput("INPUT0", [1, 1], "INT32")
            given.set_data_from_numpy(np.ones((1, 1), np.int32))
            client.infer("same", [given], request_id="eight")
        path.rename(tmp_path / "renamed")
        server.signal(signal.SIGHUP)
        wait_until(path.exists, 10, "the log file is opened again")
        assert set_log(server, log_verbose_level=0)["log_verbose_level"] == 0
        assert server.stop() == 0
    finally:
        server.kill()
    before = [json.loads(line) for line in (tmp_path / "renamed").read_text().splitlines()]
    after = [json.loads(line) for line in path.read_text().splitlines()]
    about = {
        name: [line["message"] for line in before if line.get("request_id") == name] for name in ("seven", "eight")
    }
    assert any("HTTP request: POST /v2/models/same/infer" in text for text in about["seven"])
    assert any("gRPC call: /inference.GRPCInferenceService/ModelInfer" in text for text in about["eight"])
    batches = [line for line in before if "runs 2 rows of 1 requests" in line["message"]]
    assert [(line["request_ids"], line["model"], line["level"]) for line in batches] == [(["seven"], "same", "verbose")]
    opened = [line["message"].split(":")[0] for line in before if "connection opened" in line["message"]]
    assert set(opened) == {"HTTP connection opened", "gRPC connection opened"}
    assert after[-1]["message"] == "stopped"

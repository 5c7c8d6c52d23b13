"""The comparison with other servers in ``scripts/bench``: requests, tables, environments, and Naiad's side of it."""

from __future__ import annotations

import argparse
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from support.bench_parts import part

SCORES = np.array([0.25, -1.5, 3.0], np.float32)


class Picky(BaseHTTPRequestHandler):
    """Answers every third request with 503."""

    protocol_version = "HTTP/1.1"
    asked = 0
    lock = threading.Lock()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with Picky.lock:
            Picky.asked += 1
            refused = Picky.asked % 3 == 0
        self.send_response(503 if refused else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def picky() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Picky)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def subject(tmp_path: Path) -> Any:
    row = np.array([[0.1, 2.0], [-3.5, 1e-7]], np.float32)
    return part("peers.subjects").Subject("tiny", tmp_path / "model.onnx", "x", "y", row, SCORES, 1.0)


# ---- which cases run


def test_a_pattern_names_all_cases_that_fit() -> None:
    main = part("main")
    assert main.case_names("peers_small_*,mlp") == [
        *(f"peers_small_{wire}" for wire in ("json", "b64", "binary", "grpc")),
        "mlp",
    ]
    with pytest.raises(argparse.ArgumentTypeError, match=r"no case peers_x\*; there are: mlp"):
        main.case_names("mlp,peers_x*")


def test_servers_of_others_are_installed_only_when_named() -> None:
    usual = part("main").usual_cases()
    assert "mlp" in usual
    assert [name for name in usual if name.startswith("peers_")] == []


# ---- requests


def test_each_form_carries_the_row(tmp_path: Path) -> None:
    wires, one = part("peers.wires"), subject(tmp_path)
    values = {"json": [0.1, 2.0, -3.5, 1e-7], "b64": base64.b64encode(one.row.tobytes()).decode()}
    assert json.loads(wires.plain(one, "json").body) == {"values": values["json"]}
    assert json.loads(wires.plain(one, "b64").body) == {"b64": values["b64"]}
    assert wires.plain(one, "binary").body == one.row.tobytes()
    assert json.loads(wires.rows(one, "json").body) == {"rows": [values["json"]]}
    request = wires.of_mlserver(one, "b64")
    (given,) = json.loads(request.body)["inputs"]
    assert (given["datatype"], given["shape"], given["data"]) == ("BYTES", [1, 1], [values["b64"]])
    assert request.path == "/v2/models/scorer/infer"


@pytest.mark.parametrize(
    ("dialect", "wire", "answer"),
    [
        ("plain", "json", {"scores": SCORES.tolist()}),
        ("plain", "b64", {"b64": base64.b64encode(SCORES.tobytes()).decode()}),
        ("rows", "json", [SCORES.tolist()]),
        ("rows", "b64", [base64.b64encode(SCORES.tobytes()).decode()]),
        ("of_mlserver", "json", {"outputs": [{"datatype": "FP32", "data": SCORES.tolist()}]}),
        (
            "of_mlserver",
            "b64",
            {"outputs": [{"datatype": "BYTES", "data": [base64.b64encode(SCORES.tobytes()).decode()]}]},
        ),
    ],
)
def test_scores_are_read_from_each_form(dialect: str, wire: str, answer: object, tmp_path: Path) -> None:
    request = getattr(part("peers.wires"), dialect)(subject(tmp_path), wire)
    assert np.array_equal(request.read({}, json.dumps(answer).encode()), SCORES)


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["json", "b64", "binary", "grpc"])
def test_naiad_answers_each_form_with_the_scores(wire: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    settings = part("settings").Settings(tmp_path)
    small = part("peers.subjects").make_subject("small", tmp_path)
    naiad = part("peers.table").PEERS[0]
    # It returns once the scores were right.
    with part("peers.launch").serving(settings, naiad, small, wire) as (server, request):
        process = psutil.Process(server.pid)
        assert np.allclose(request.ask(server.port), small.scores, atol=1e-4)
    assert not process.is_running()


@pytest.mark.slow
def test_a_server_that_ends_is_named_with_its_log(tmp_path: Path) -> None:
    table, launch, figures = part("peers.table"), part("peers.launch"), part("figures")
    ending = table.Peer("ending", lambda place: ["sh", "-c", "echo no room; exit 3"], part("peers.wires").plain)
    with (
        pytest.raises(figures.CaseError, match=r"it ended with code 3; its log ends:\nno room"),
        launch.serving(part("settings").Settings(tmp_path), ending, subject(tmp_path), "json"),
    ):
        pass


def test_the_reference_is_not_had_without_its_path(tmp_path: Path) -> None:
    table, figures = part("peers.table"), part("figures")
    place = table.Place(part("settings").Settings(tmp_path), subject(tmp_path), "json", tmp_path, (1, 2, 3))
    (reference,) = (peer for peer in table.PEERS if peer.name == "reference")
    with pytest.raises(figures.CaseSkippedError, match="not had: name its executable with --reference"):
        reference.command(place)


# ---- environments


def test_what_cannot_be_installed_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environments, figures = part("peers.environments"), part("figures")
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv(environments.VARIABLE, str(file))
    with pytest.raises(
        figures.CaseSkippedError, match=r"thing could not be installed \(thing==1\): .*[Nn]ot a directory"
    ):
        environments.environment("thing", ["thing==1"])


# ---- figures


def seen(rate: float, cpu_us: float, failures: int = 0, busy: float = 0.1) -> Any:
    problem = "503 Service Unavailable" if failures else ""
    return part("peers.locust_load").Seen(rate, 12.0, cpu_us, 50 << 20, 100, failures, problem, busy)


def found(cpu_us: float, busy: float = 0.1, failures: int = 0) -> Any:
    compare = part("peers.compare")
    light = [compare.Light(900.0, cpu_us)] * 3
    loads = [[seen(100.0, cpu_us, failures, busy)] * 3 for _ in range(3)]
    return compare.Found(*loads, light)


def test_a_server_is_compared_with_naiad_pair_by_pair() -> None:
    compare = part("peers.compare")
    ours, theirs = found(200.0), found(500.0, failures=2)
    lines = {figure.name: figure for figure in compare.figures("peers_x", theirs, ours)}
    assert lines["peers_x_dearer"].value == 2.5
    assert (lines["peers_x_max"].value, lines["peers_x_max_p95"].value) == (100.0, 12.0)
    failed = lines["peers_x_stress_failed"]
    assert (failed.value, failed.unit, failed.note) == (6, "of 300", "503 Service Unavailable")
    assert "peers_x_dearer" not in {figure.name for figure in compare.figures("peers_x", ours, ours)}


def test_the_table_says_where_locust_was_the_limit() -> None:
    rows = part("peers.compare").table({"naiad": found(200.0, busy=0.99), "other": found(500.0)}).splitlines()
    assert "100 (Locust)" in rows[2] and "| 1.00 |" in rows[2]
    assert "(Locust)" not in rows[3] and "| 2.50 |" in rows[3]


@pytest.mark.slow
def test_failures_under_locust_are_figures(picky: int, tmp_path: Path) -> None:
    locust, environments = part("peers.locust_load"), part("peers.environments")
    if not list(environments.cache_folder().glob("locust-*/installed")):
        pytest.skip("scripts/bench --only peers_* has not installed Locust here")
    request = part("peers.wires").WireRequest("http", "/json", b"{}", lambda _, body: SCORES)
    result = locust.put_load(psutil.Process().pid, picky, request, locust.UserLoad(5, 10.0), 2, tmp_path)
    assert result.requests > 5
    assert result.failures == Picky.asked // 3 > 0
    assert "503" in result.problem
    assert result.rate > 0 and result.p95_ms > 0 and result.memory > 0

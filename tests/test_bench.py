"""``scripts/bench``: its parts on real sockets and processes, and the whole of it on the server."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.perf.prepared import send_at_rate
from naiad.perf.results import RequestRecord
from naiad.perf.target.prepared_http import PreparedRequest
from support.bench_parts import SECONDS_LIMIT, bench, part

LATE_S = 0.3


class Echo(BaseHTTPRequestHandler):
    """Answers what it was sent; 400 under /bad, nothing at all under /lost, late the first time under /first-late."""

    protocol_version = "HTTP/1.1"
    requests_before = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/lost":
            self.close_connection = True
            return
        if self.path == "/first-late" and self.requests_before == 0:
            time.sleep(LATE_S)
        self.requests_before += 1
        self.send_response(400 if self.path == "/bad" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def echo() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def call(kind: str, path: str, body: bytes, *, close: bool = False) -> Any:
    closed_loop, infer = part("closed_loop"), part("infer")

    def judge(answer: Any) -> str:
        return closed_loop.expect_status(200)(answer) or ("" if answer.body == body else "another's answer")

    return closed_loop.Call(kind, infer.Request(path, {}, body).wire(close=close), judge, close)


# ---- the callers


def test_every_caller_gets_its_own_answer() -> None:
    with echo() as port:
        calls = iter([call("echo", "/", f"{number} ".encode() * 999, close=number % 7 == 0) for number in range(100)])
        tally = part("closed_loop").run_calls(port, calls, 4, SECONDS_LIMIT)
    assert tally.right == {"echo": 100}
    assert tally.summary() == ""
    assert tally.latencies.count == 100


def test_refused_and_lost_requests_are_counted_and_named() -> None:
    with echo() as port:
        calls = [call("bad", "/bad", b"x"), call("lost", "/lost", b"x"), call("good", "/", b"x")]
        tally = part("closed_loop").run_calls(port, iter(calls), 1, SECONDS_LIMIT)
    assert tally.right == {"good": 1}
    assert tally.wrong == {"bad": 1, "lost": 1}
    assert "1 x bad: answered 400, expected 200: x" in tally.summary()
    assert "1 x lost: no answer: the server closed the connection" in tally.summary()


def test_a_server_that_never_answers_fails_the_case() -> None:
    figures = part("figures")
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        pytest.raises(figures.CaseError, match=r"no response within 0.2 s.*'x': 1"),
    ):
        part("closed_loop").run_calls(deaf.getsockname()[1], iter([call("x", "/", b"x")]), 1, 0.2)


def test_nobody_listening_is_a_problem_and_no_hang() -> None:
    port, figures = part("machine").free_port(), part("figures")
    with pytest.raises(figures.CaseError, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
        part("closed_loop").run_calls(port, iter([call("x", "/", b"x")]), 2, SECONDS_LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("with_wrk", [True, False])
def test_both_load_generators_count_answers(with_wrk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if with_wrk and not shutil.which("wrk"):
        pytest.skip("wrk is not installed")
    load, infer, servers = part("load"), part("infer"), part("servers")
    if not with_wrk:
        monkeypatch.setattr(load.shutil, "which", lambda name: None)
    with echo() as port:
        server = servers.Server("echo", part("machine").psutil.Process().pid, port, 0.0)
        result = load.measure(server, infer.Request("/", {}, b"x"), 2, 1, tmp_path, pin=False)
        with pytest.raises(part("figures").CaseError, match="echo under 2 connections"):
            load.measure(server, infer.Request("/bad", {}, b"x"), 2, 1, tmp_path, pin=False)
    assert result.requests > 10
    assert 0 < result.p50_us <= result.p95_us <= result.p99_us
    assert result.cpu_us > 0


@pytest.mark.slow
def test_a_schedule_is_kept_and_what_waits_is_counted_from_when_it_was_due() -> None:
    infer, naiad_load = part("infer"), part("naiad_load")
    with echo() as port:
        wire = infer.Request("/first-late", {}, b"x").wire()
        request = PreparedRequest(wire, naiad_load.judge)
        latency = send_at_rate(f"127.0.0.1:{port}", request, 100, 50, 1, SECONDS_LIMIT).latency
    assert latency.count == 50
    # All that were due in the first tenth of a second, the slowest ten, waited for the first one's answer.
    assert latency.percentile(82) > (LATE_S - 0.11) * 1e9


@pytest.mark.slow
def test_a_load_at_a_rate_is_measured_or_fails(tmp_path: Path) -> None:
    load, infer, servers, figures = part("load"), part("infer"), part("servers"), part("figures")
    with echo() as port:
        server = servers.Server("echo", part("machine").psutil.Process().pid, port, 0.0)
        result = load.measure_at(server, infer.Request("/", {}, b"x"), 200, 2, 1, tmp_path)
        with pytest.raises(figures.CaseError, match=r"echo under 200 requests/s.*400"):
            load.measure_at(server, infer.Request("/bad", {}, b"x"), 200, 2, 1, tmp_path)
        with pytest.raises(figures.CaseError, match=r"echo under 200 requests/s.*closed"):
            load.measure_at(server, infer.Request("/lost", {}, b"x"), 200, 2, 1, tmp_path)
    assert result.requests == 200
    assert 0 < result.p50_us <= result.p95_us <= result.p99_us


# ---- what the cases are made of


def test_the_processor_time_of_a_tree_counts_its_children() -> None:
    machine = part("machine")
    spin = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {spin + 'input()'!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE) as process:
        deadline = time.monotonic() + SECONDS_LIMIT
        while machine.cpu_seconds(process.pid) < 0.15 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert machine.cpu_seconds(process.pid) >= 0.15
        assert machine.resident_bytes(process.pid) > machine.MIB
        process.communicate(b"\n", timeout=SECONDS_LIMIT)


def test_a_request_reads_back_as_its_tensors() -> None:
    infer = part("infer")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    request = infer.binary_request("m", {"x": x}, "y", request_id="7")
    length = int(request.headers[infer.HEADER_LENGTH])
    header = json.loads(request.body[:length])
    assert header["id"] == "7"
    assert header["inputs"][0]["parameters"] == {"binary_data_size": 24}
    answer = json.dumps({"outputs": header["inputs"]}).encode()
    assert np.array_equal(infer.read_outputs(answer + x.tobytes(), len(answer))["x"], x)


def test_the_networks_compute_what_the_cases_expect(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    models = part("models")
    x, row = np.random.default_rng(1).random((3, 16), np.float32), np.array([[0], [5], [15]])
    small = onnxruntime.InferenceSession(models.add_mlp(tmp_path))
    picky = onnxruntime.InferenceSession(models.add_picky(tmp_path, "picky", 16, 100))
    assert np.allclose(small.run(None, {"x": x})[0], models.mlp_by_hand(x), atol=1e-5)
    expected = models.mlp_by_hand(x) + models.lookup_table()[row[:, 0]]
    assert np.allclose(picky.run(None, {"x": x, "row": row})[0], expected, atol=1e-5)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="out of data bounds"):
        picky.run(None, {"x": x, "row": np.array([[0], [10**6], [1]])})


def test_the_growth_mix_does_not_repeat_what_it_varies() -> None:
    calls = list(islice(part("cases.growth").mixed_calls(), 2000))
    varied = [call.wire for call in calls if call.kind in {"id", "unknown model", "unknown path", "broken JSON"}]
    assert len(set(varied)) == len(varied) == 2000 * 7 // 20
    assert {call.kind for call in calls} >= {"infer", "json", "wrong shape", "new connection", "model metadata"}


# ---- figures and the table


@pytest.mark.parametrize(
    ("sense", "value", "holds"),
    [(">=", 4, True), (">=", 3.9, False), ("<=", 4, True), ("<=", 4.1, False), ("<", 4, False), ("=", 4, True)],
)
def test_a_bound_says_whether_it_holds(sense: str, value: float, holds: bool) -> None:
    assert part("figures").Bound(sense, 4).holds(value) is holds


def test_ratios_are_taken_pair_by_pair() -> None:
    rounds = part("rounds")
    order: list[str] = []
    taken = rounds.alternate(2, {"a": lambda: order.append("a"), "b": lambda: order.append("b")})
    assert order == ["a", "b", "a", "b"]
    assert taken == {"a": [None, None], "b": [None, None]}
    assert rounds.median_ratio([10.0, 20.0, 90.0], [10.0, 10.0, 30.0], float) == 2.0


def test_adjacent_pairs_change_who_is_first() -> None:
    rounds = part("rounds")
    order: list[str] = []

    def take(name: str) -> str:
        order.append(name)
        return f"{name}{len(order)}"

    taken = rounds.adjacent_pairs(3, lambda: take("a"), lambda: take("b"))
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert taken == (["a1", "a4", "a5"], ["b2", "b3", "b6"])


def test_the_table_shows_bounds_verdicts_and_failures() -> None:
    figures, report = part("figures"), part("report")
    fast = figures.Figure("rate", 12_345.6, "requests/s", figures.Bound(">=", 100), "by wrk")
    slow = figures.Figure("start", 0.75, "s", figures.Bound("<", 0.5))
    results = [
        report.Result("one", "measured", (fast, slow)),
        report.Result("two", "failed", (), "the server ended:\nwhy"),
    ]
    lines = report.table(results).splitlines()
    assert lines[1].split() == ["rate", "12,346", "requests/s", ">=", "100", "ok", "by", "wrk"]
    assert lines[2].split() == ["start", "0.75", "s", "<", "0.5", "missed"]
    assert lines[3].split() == ["two", "failed", "see", "below"]
    assert lines[4:] == ["two failed: the server ended:", "why"]
    assert report.missed(results) == [slow]


# ---- the command


@pytest.mark.slow
def test_unknown_cases_are_named_with_the_known_ones() -> None:
    finished = bench("--only", "mlp,nonsense")
    assert finished.returncode == 2
    assert "no case nonsense; there are: mlp, large," in finished.stderr


@pytest.mark.slow
def test_quick_run_on_the_server(tmp_path: Path) -> None:
    result = tmp_path / "figures.json"
    finished = bench("--quick", "--only", "start_ready,import_time", "--json", str(result))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.splitlines()[1].startswith("start_ready")
    cases = json.loads(result.read_text())["cases"]
    assert [case["outcome"] for case in cases] == ["measured", "measured"]
    assert 0 < cases[0]["figures"][0]["value"] < 30


def test_the_slope_of_memory_sees_a_leak_and_not_a_step() -> None:
    growth = part("cases.growth")
    counts = list(range(10_000, 210_000, 10_000))
    assert growth.typical_slope(counts, [1_000_000 + 5 * n for n in counts]) == 5
    assert growth.typical_slope(counts, [1_000_000 + (700_000 if n > 120_000 else 0) for n in counts]) == 0


# ---- gRPC


@contextmanager
def grpc_peer(kind: str, work: Path) -> Iterator[Any]:
    with part("servers").peer(kind, work) as server:
        yield server


def identity_call(**changes: Any) -> Any:
    request, callers = part("grpc_request"), part("grpc_callers")
    message = request.infer_message("identity", {"INPUT0": np.arange(16, dtype=np.float32)}, "OUTPUT0")
    given = {"kind": "good", "path": request.INFER, "message": message} | changes
    return callers.GrpcCall(**given)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["aio", "sync"])
def test_grpc_peers_answer_and_are_measured(kind: str, tmp_path: Path) -> None:
    if not shutil.which("h2load"):
        pytest.skip("h2load is not installed")
    h2load, request = part("h2load"), part("grpc_request")
    x = np.random.default_rng(1).random(16, np.float32)
    message = request.infer_message("identity", {"INPUT0": x}, "OUTPUT0")
    with grpc_peer(kind, tmp_path) as server:
        size = request.check_infer(server.port, message, "OUTPUT0", x)
        with pytest.raises(part("figures").CaseError, match="gave a wrong OUTPUT0"):
            request.check_infer(server.port, message, "OUTPUT0", x + 1)
        load = h2load.measure_grpc(h2load.GrpcContender(server, message, size), h2load.Fan(2, 4), 1, tmp_path)
        assert load.calls > 50
        assert load.cpu_us > 0
        refused = h2load.GrpcContender(server, b"", size)
        with pytest.raises(part("figures").CaseError, match="refused calls"):
            h2load.measure_grpc(refused, h2load.Fan(2, 4), 1, tmp_path)


H2LOAD_PRINTED = """\
requests: 100 total, 104 started, 100 done, {succeeded} succeeded, {failed} failed, 0 errored, 0 timeout
status codes: 100 2xx, 0 3xx, {refused} 4xx, 0 5xx
traffic: 32.76MB (34352631) total, 5.89MB (6175744) headers (space savings 15.79%), 19.14MB ({data}) data
"""
GOOD_PRINT = {"succeeded": 100, "failed": 0, "refused": 0, "data": 10_400}


@pytest.mark.parametrize("data", [10_400, 10_816])
def test_whole_answers_are_counted(data: int) -> None:
    printed = H2LOAD_PRINTED.format(**(GOOD_PRINT | {"data": data}))
    assert part("h2load").answered_calls(printed, 104, "x") == 100


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"data": 10_399}, "refused calls"),
        ({"data": 10_817}, "refused calls"),
        ({"refused": 1}, "not all are good"),
        ({"succeeded": 99, "failed": 1}, "not all are good"),
    ],
)
def test_answers_that_are_not_whole_fail_the_case(changes: dict[str, int], problem: str) -> None:
    printed = H2LOAD_PRINTED.format(**(GOOD_PRINT | changes))
    with pytest.raises(part("figures").CaseError, match=problem):
        part("h2load").answered_calls(printed, 104, "x")


def test_the_fan_reads_as_connections_by_streams() -> None:
    assert str(part("h2load").Fan(4, 16)) == "4x16"


def test_grpc_callers_judge_every_status(tmp_path: Path) -> None:
    service = part("grpc_request").SERVICE
    calls = [
        *[identity_call(close=number % 3 == 0) for number in range(12)],
        identity_call(kind="metadata", metadata=(("x-number", "7"), ("grpc-timeout", "20S"))),
        identity_call(kind="two frames", message=identity_call().message + b"\x1a\xd0\x8c\x01" + b"i" * 18_000),
        identity_call(kind="cancelled", cancel=True),
        identity_call(kind="unknown method", path=f"{service}/Nothing", codes=(12,)),
        identity_call(kind="broken", message=b"\x0a"),
        identity_call(),
    ]
    with grpc_peer("sync", tmp_path) as server:
        tally = part("grpc_callers").run_grpc_calls(server.port, iter(calls), 3, SECONDS_LIMIT)
    assert tally.right == {"good": 13, "metadata": 1, "two frames": 1, "cancelled": 1, "unknown method": 1}
    assert tally.wrong == {"broken": 1}
    assert "1 x broken: answered grpc-status 13, expected 0: " in tally.summary()


def test_grpc_callers_name_a_connection_that_is_lost() -> None:
    with echo() as port:
        tally = part("grpc_callers").run_grpc_calls(port, iter([identity_call()]), 1, SECONDS_LIMIT)
    assert tally.right == {}
    assert tally.wrong == {"good": 1}


def test_the_grpc_growth_mix_does_not_repeat_what_it_varies() -> None:
    calls = list(islice(part("cases.grpc_growth").mixed_calls(), 2000))
    varied = [(call.path, call.message) for call in calls if call.kind in {"id", "unknown model", "unknown method"}]
    assert len(set(varied)) == len(varied) == 2000 * 4 // 20
    assert {call.kind for call in calls} >= {"infer", "stream", "cancelled", "typed contents", "ModelStatistics"}
    assert max(len(call.message) for call in calls) < 60_000


def test_the_slope_of_grpc_memory_sees_a_leak_and_neither_a_step_nor_a_sawtooth() -> None:
    growth = part("cases.grpc_growth")
    counts = list(range(25_000, 525_000, 25_000))
    leak = [5 * n for n in counts]
    assert growth.kept_slope(counts, leak) == pytest.approx(5)
    assert growth.kept_slope(counts, [700_000 * (n > 250_000) for n in counts]) == 0
    sawtooth = [n % 150_000 * 5 for n in counts]
    assert growth.typical_slope(counts, sawtooth) == 5
    assert growth.kept_slope(counts, sawtooth) < 1
    assert growth.kept_slope(counts, [a + b for a, b in zip(leak, sawtooth, strict=True)]) > 4.5


@pytest.mark.slow
def test_quick_run_of_the_mixed_grpc_calls(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    result = tmp_path / "figures.json"
    finished = bench("--quick", "--only", "grpc_growth", "--json", str(result))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (case,) = json.loads(result.read_text())["cases"]
    assert case["outcome"] == "measured", case


def test_perf_analyzer_is_asked_for_and_read(tmp_path: Path) -> None:
    perf, servers = part("perf_analyzer"), part("servers")
    printed = "Request concurrency: 4\n  Client: \n    Request count: 8\n"
    table = "Concurrency,Inferences/Second,p99 latency,Avg latency\\n4,8,300,200\\n"
    tool = tmp_path / "perf_analyzer"
    tool.write_text(
        f"#!/bin/bash\nwhile [ \"$1\" != -f ]; do shift; done\nprintf '{table}' > \"$2\"\nprintf '%s' '{printed}'\n"
    )
    tool.chmod(0o755)
    server = servers.Server("any", part("machine").psutil.Process().pid, 1, 0.0)
    analysis = perf.analyze(tool, server, perf.Plan(16, 4, 8), 1, tmp_path)
    assert (analysis.rate, analysis.p99_us) == (20_000, 300)
    with pytest.raises(part("figures").CaseError, match="asked for 9 inferences"):
        perf.analyze(tool, server, perf.Plan(16, 4, 9), 1, tmp_path)


def test_the_case_is_skipped_where_perf_analyzer_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf, settings, figures = part("perf_analyzer"), part("settings"), part("figures")
    monkeypatch.delenv("PERF_ANALYZER", raising=False)
    monkeypatch.setattr(perf.shutil, "which", lambda name: None)
    with pytest.raises(figures.CaseSkippedError, match="--perf-analyzer"):
        perf.find_tool(settings.Settings(tmp_path))
    with pytest.raises(figures.CaseError, match="not an executable file"):
        perf.find_tool(settings.Settings(tmp_path, perf_analyzer=tmp_path / "missing"))


def test_the_requests_of_an_overload_count_from_when_they_were_due() -> None:
    overload = part("cases.overload")
    records = [
        RequestRecord(0, 5_000_000_000 + due_ms * 1_000_000, (5_000_000_000 + ended_ms * 1_000_000,), is_success=ok)
        for due_ms, ended_ms, ok in ((0, 30, True), (10, 11, False), (1020, 1050, True))
    ]
    found = overload.Requests.of(records)
    assert found.due_s.tolist() == pytest.approx([0, 0.01, 1.02])
    assert found.percentile_ms(99, found.is_accepted) == pytest.approx(30)
    assert found.percentile_ms(99, ~found.is_accepted) == pytest.approx(1)
    assert found.percentile_ms(99, found.due_s > 2) == 0

"""How a server ends: what runs is answered, what cannot end is cut off, and the exit code says which."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from naiad.server.process import SAME_SIGNAL_S
from naiad.testing import RunningServer, read_response, request_bytes, serving, start_server, wait_until
from support.served_models import identity, numbers, write_model

SLOW = "/v2/models/slow/infer"


def slow_server(folder: Path, delay_ms: int, *options: object) -> tuple[Path, Path, tuple[object, ...]]:
    write_model(folder / "models", "slow", identity(delay_ms=delay_ms))
    return folder / "log", folder / "models", options


def body(*values: int) -> bytes:
    return repr(numbers(list(values))).replace("'", '"').encode()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_requests_in_flight_are_answered(tmp_path: Path, number: signal.Signals) -> None:
    log, models, options = slow_server(tmp_path, 300)
    with serving(log, models, *options) as server, ThreadPoolExecutor(3) as callers:
        kept = server.connect()
        kept.sendall(request_bytes("GET", "/v2/health/live", None))
        assert read_response(kept).status == 200
        asked = [callers.submit(server.infer, "slow", numbers([i])) for i in range(3)]
        server.wait_pending("slow", 2)
        server.signal(number)
        server.wait_for("Waiting for in-flight requests to complete, up to 30 s")
        assert not_ready(server)
        answers = [a.result(20) for a in asked]
        assert [a.json()["outputs"][0]["data"] for a in answers] == [[0], [1], [2]]
        assert server.wait_exit() == 0
        assert kept.recv(1) == b""
        kept.close()
        assert "stopped" in server.log
        assert "Traceback" not in server.log


def not_ready(server: RunningServer) -> bool:
    """Whether a new caller is told, or finds, that the server is going away."""
    try:
        return server.get("/v2/health/ready").status == 400
    except ConnectionError:
        return True


@pytest.mark.slow
def test_the_exit_timeout_cuts_off(tmp_path: Path) -> None:
    log, models, options = slow_server(tmp_path, 20_000, "--exit-timeout-secs", "1")
    with serving(log, models, *options) as server, server.connect() as peer:
        peer.sendall(request_bytes("POST", SLOW, body(1)))
        server.wait_in_flight(1)
        begun = time.monotonic()
        server.signal()
        assert server.wait_exit(15) == 1
        assert 0.9 < time.monotonic() - begun < 15
        assert "Model 'slow' (version 1) has 1 in-flight inferences" in server.log
        assert "Exit timeout expired. Exiting immediately." in server.log


@pytest.mark.slow
def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    log, models, options = slow_server(tmp_path, 20_000)
    with serving(log, models, *options) as server, server.connect() as peer:
        peer.sendall(request_bytes("POST", SLOW, body(1)))
        server.wait_in_flight(1)
        server.signal()
        server.wait_for("Waiting for in-flight")
        told_s = time.monotonic()
        wait_until(lambda: time.monotonic() - told_s > SAME_SIGNAL_S, 5, "it is another signal")
        server.signal()
        assert server.wait_exit(5) == 1
        assert "again" in server.log


@pytest.mark.slow
def test_a_signal_sent_twice_at_once_is_one(tmp_path: Path) -> None:
    log, models, options = slow_server(tmp_path, 1500)
    with serving(log, models, *options) as server, ThreadPoolExecutor(1) as callers:
        asked = callers.submit(server.infer, "slow", numbers([1]))
        server.wait_in_flight(1)
        # What timeout(1) does: the process, then the process and its group. Nothing is waited for in between, so they
        # come within SAME_SIGNAL_S on a busy machine too.
        server.signal()
        os.killpg(server.process.pid, signal.SIGTERM)
        server.signal(signal.SIGINT)
        server.wait_for("Waiting for in-flight")
        assert asked.result(20).json()["outputs"][0]["data"] == [1]
        assert server.wait_exit() == 0
        assert "again" not in server.log


@pytest.mark.slow
def test_idle_and_half_sent_connections_do_not_hold_the_end_up(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with serving(tmp_path / "log", tmp_path / "models") as server, ExitStack() as closing:
        peers = [closing.enter_context(server.connect()) for _ in range(4)]
        peers[1].sendall(b"GET /v2/hea")
        peers[2].sendall(request_bytes("GET", "/v2/health/live", None))
        assert read_response(peers[2]).status == 200
        peers[3].sendall(b"POST /v2/models/x/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 10


def test_sigterm_while_loading(tmp_path: Path) -> None:
    delay = 'parameters { key: "creation_delay_sec" value { string_value: "30" } }'
    write_model(tmp_path / "models", "late", identity(extra=delay))
    server = start_server(tmp_path / "log", tmp_path / "models")
    try:
        server.wait_listening()
        server.wait_for("loading: late:1")
        assert server.get("/v2/health/live").status == 200
        assert server.get("/v2/health/ready").status == 400
        assert server.get("/v2/models/late/ready").status == 400
        assert server.infer("late", numbers([1])).status in (404, 503)
        server.signal()
        assert server.wait_exit(5) == 0
        assert "Traceback" not in server.log
    finally:
        server.kill()


@pytest.mark.slow
def test_a_closed_standard_output_ends_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    write_model(tmp_path / "models", "same", identity())
    server = start_server(tmp_path / "log", tmp_path / "models", stdout=writer)
    os.close(writer)
    try:
        seen = b""
        while b" is ready: " not in seen:
            seen += os.read(reader, 4096)
        os.close(reader)
        server.http = int(seen.split(b"HTTPService at 127.0.0.1:")[1].split(b'"')[0])
        for i in range(20):
            assert server.infer("same", numbers([i])).json()["outputs"][0]["data"] == [i]
        assert server.stop() == 0
        assert "Traceback" not in server.log
    finally:
        server.kill()


@pytest.mark.slow
def test_a_log_file_in_place_of_the_streams(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    log = tmp_path / "naiad.log"
    server = start_server(
        tmp_path / "log", tmp_path / "models", "--log-file", log, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: log.exists() and " is ready: " in log.read_text(), 20, "serves")
        assert server.stop() == 0
    finally:
        server.kill()

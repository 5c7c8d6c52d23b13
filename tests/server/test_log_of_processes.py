"""The log of a server of several processes: one file for all of them, which is rotated and may be renamed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from naiad.testing import RunningServer, start_server, wait_until
from server.test_frontend_processes import FRONTS, ask, one_connection_each, processes
from support.api_keys import hashed
from support.served_models import identity, numbers, write_model

OPENED = "HTTP connection opened"
KEY = "the-key"


@contextmanager
def logging_to(path: Path, *options: object) -> Iterator[RunningServer]:
    """A server whose log is at ``path``; it has to end well."""
    write_model(path.parent / "models", "same", identity())
    path.touch()
    server = start_server(
        path.parent / "out", path.parent / "models", *FRONTS, "--log-file", path, "--log-format=json", *options
    )
    server.log_file = path
    try:
        server.wait_ready()
        yield server
        assert server.stop() == 0
    finally:
        server.kill()


def lines(*paths: Path) -> list[dict[str, Any]]:
    """The lines of some files; each is JSON."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def opened_in(found: list[dict[str, Any]]) -> list[int]:
    """The process of each line about a connection that was opened."""
    return [line["process"] for line in found if OPENED in line["message"]]


def make_verbose(server: RunningServer, path: Path) -> None:
    """Let every process log all it can."""
    fronts = {front.pid for front in processes(server)["front"]}
    assert server.post("/v2/logging", {"log_verbose_level": 3}).status == 200

    def all_log() -> bool:
        assert server.get("/v2/health/live").status == 200
        return set(opened_in(lines(path))) == fronts

    wait_until(all_log, 10, "each front end logs its connections")


@pytest.mark.slow
def test_a_full_file_is_renamed_and_no_process_loses_a_line(tmp_path: Path) -> None:
    path, most, count = tmp_path / "naiad.log", 20_000, 100
    with logging_to(path, "--log-file-max-bytes", most, "--log-file-backups=90") as server:
        make_verbose(server, path)
        for number in range(count):
            # Each on a connection of its own, which a front end logs; the engine logs the request.
            assert server.infer("same", numbers([number], id=f"request-{number}")).status == 200
    files = [path, *tmp_path.glob("naiad.log.*")]
    assert len(files) > 2
    # Another process may have written between the look at the size and the line.
    assert max(file.stat().st_size for file in files) < 2 * most
    found = lines(*files)
    asked = [line["request_id"] for line in found if "HTTP request: POST" in line["message"] and "request_id" in line]
    assert sorted(asked) == sorted(f"request-{number}" for number in range(count))
    assert len(opened_in(found)) >= count


@pytest.mark.slow
def test_all_processes_leave_a_renamed_file_alone(tmp_path: Path) -> None:
    path, renamed = tmp_path / "naiad.log", tmp_path / "renamed"
    with logging_to(path, "--log-verbose=3") as server:
        path.rename(renamed)
        assert server.infer("same", numbers([1], id="before")).status == 200
        server.signal(signal.SIGHUP)
        wait_until(path.exists, 10, "the log file is opened again")
        # A process may be about to write a line.
        assert server.infer("same", numbers([1], id="between")).status == 200
        size = renamed.stat().st_size
        for _ in range(20):
            assert server.infer("same", numbers([1], id="after")).status == 200
        killed, other = processes(server)["front"]
        killed.kill()
        wait_until(lambda: "was killed by signal 9" in server.log, 10, "the main process has said so")
        assert renamed.stat().st_size == size
    assert any(line.get("request_id") == "before" for line in lines(renamed))
    after = lines(path)
    assert {killed.pid, other.pid} <= set(opened_in(after))
    assert {line["process"] for line in after if "was killed" in line["message"]} == {server.process.pid}
    assert any(line.get("request_id") == "after" for line in after)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["front", "engine"])
def test_a_process_that_has_just_begun_is_not_ended_by_the_signal_to_read_files(tmp_path: Path, kind: str) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"caller infer,observe {hashed(KEY)}\n")
    with logging_to(tmp_path / "naiad.log", "--api-key-file", keys) as server:
        processes(server)[kind][0].kill()
        wait_until(lambda: "was killed by signal 9" in server.log, 10, "it is started again")
        before = server.log.count("were read again")
        server.signal(signal.SIGHUP)
        # All three read them: the one that began later as soon as it can.
        wait_until(lambda: server.log.count("were read again") >= before + 3, 30, "the keys are read again")
        server.wait_ready()
        assert "was killed by signal 1:" not in server.log


@pytest.mark.slow
def test_changed_settings_are_those_of_front_ends_too(tmp_path: Path) -> None:
    path = tmp_path / "naiad.log"
    with logging_to(path) as server:
        fronts = {front.pid for front in processes(server)["front"]}
        assert server.post("/v2/logging", {"log_format": "ISO8601", "log_verbose_level": 3}).status == 200

        def is_logged() -> bool:
            assert server.get("/v2/health/live").status == 200
            return any(f"I {pid} " in line and OPENED in line for pid in fronts for line in server.log.splitlines())

        wait_until(is_logged, 10, "a front end logs its connections in the new format")


def test_lines_about_requests_have_their_ids_whatever_process_they_come_to(tmp_path: Path) -> None:
    path = tmp_path / "naiad.log"
    with logging_to(path) as server, one_connection_each(server) as connections:
        make_verbose(server, path)
        wrong = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [1]}]}
        for number, connection in enumerate(connections):
            for kind, given, status in (("right", numbers([1]), 200), ("wrong", wrong, 400)):
                named = {**given, "id": f"{kind}-{number}"}
                assert ask(connection, "/v2/models/same/infer", named).status == status
        wanted = {f"{kind}-{number}" for kind in ("right", "wrong") for number in range(2)}

        def all_logged() -> bool:
            return wanted == {line["request_id"] for line in lines(path) if "request_id" in line}

        wait_until(all_logged, 10, "each request has a line with its id")

"""Servers that are not there, fail, end or stand in the way: one message with the cause, and never a hang."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.perf.target.protocol import TargetError
from support.certificates import new_authority
from support.perf_peer import peer
from support.perf_runs import RUN_S, measure, measure_level, run_command, started, wait_for_line, windows

FAILED = 99


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and says nothing: no more than a backlog."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def failure(*words: object) -> str:
    """The message of a run that ends with a failure."""
    code, _, errors = run_command(*words)
    assert code == FAILED, errors
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, errors
    return lines[0]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_unreachable_server(protocol: str) -> None:
    address = closed_port()
    with pytest.raises(TargetError, match=f"cannot connect to {address}: Connection refused"):
        measure("-m", "known", "-u", address, "-i", protocol)


def test_an_unknown_host() -> None:
    with pytest.raises(TargetError, match=r"cannot find the host of nowhere\.invalid:8000"):
        measure("-m", "known", "-u", "nowhere.invalid:8000")


def test_a_model_that_is_not_there() -> None:
    with peer() as address, pytest.raises(TargetError, match=r"'other' at .* failed: HTTP 404: not here"):
        measure("-m", "other", "-u", address)


def test_a_first_response_that_is_an_error() -> None:
    with peer(status=503) as address, pytest.raises(TargetError, match="HTTP 503: the peer was told to fail"):
        measure("-m", "known", "-u", address)


def test_errors_are_counted_by_kind_and_end_a_run_without_successes() -> None:
    with peer(status=503, fail_after=1) as address:
        report = measure("-m", "known", "-u", address, *windows(200))
    (level,) = report.levels
    assert set(level.merged.errors) == {("HTTP 503", "the peer was told to fail")}
    assert level.merged.requests == 0


def test_some_errors_do_not_end_a_run() -> None:
    with peer(status=500, fail_after=200) as address:
        level = measure_level("-m", "known", "-u", address, "--request-count", 500)
    assert level.merged.requests == 199
    assert dict(level.merged.errors) == {("HTTP 500", "the peer was told to fail"): 301}


def test_a_server_that_ends(tmp_path: Path) -> None:
    with peer(end_after=500, delay_ms=1) as address:
        text = failure("-m", "known", "-u", address, "-p", 200, "--concurrency-range", 4)
    assert f"cannot connect to {address}: Connection refused" in text


def test_a_server_that_hangs_up() -> None:
    with peer(hang_up_after=50) as address:
        text = failure("-m", "known", "-u", address, "-p", 200)
    assert "closes every connection before it responds" in text


def test_a_server_of_another_protocol() -> None:
    with peer(garbage=1) as address, pytest.raises(TargetError, match=r"expected a response of HTTP/1\.1"):
        measure("-m", "known", "-u", address)


def test_grpc_against_a_server_of_http(tmp_path: Path) -> None:
    with peer() as address, pytest.raises(TargetError):
        measure("-m", "known", "-u", address, "-i", "grpc")


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    identity = new_authority(tmp_path, "root").issue("server")
    with (
        peer(cert=identity.cert, key=identity.key) as address,
        pytest.raises(TargetError, match="the server's certificate is not trusted"),
    ):
        measure("-m", "known", "-u", f"https://{address}")


def test_tls_with_a_trusted_certificate(tmp_path: Path) -> None:
    authority = new_authority(tmp_path, "root")
    identity = authority.issue("server")
    roots = ("--ssl-https-ca-certificates-file", authority.root)
    with peer(cert=identity.cert, key=identity.key) as address:
        level = measure_level("-m", "known", "-u", f"https://{address}", *roots, "--request-count", 50)
    assert level.merged.requests == 50


def test_tls_against_a_plain_server() -> None:
    with peer() as address, pytest.raises(TargetError, match="TLS failed"):
        measure("-m", "known", "-u", f"https://{address}")


@pytest.mark.slow
def test_an_interrupt_prints_what_was_found() -> None:
    words = ("-p", 300, "-v", "-s", 0.001, "-r", 99)
    with peer(delay_ms=5) as address, started("-m", "known", "-u", address, *words) as process:
        wait_for_line(process, "Pass [1]")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=RUN_S)
    assert "Concurrency: 1, throughput: " in out, errors
    assert "stopped by the user" in out


@pytest.mark.slow
def test_an_interrupt_while_the_first_response_is_missing() -> None:
    with peer(first_ms=60_000) as address, started("-m", "known", "-u", address) as process:
        wait_for_line(process, "calls for inference")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=RUN_S)
    assert "error: stopped by the user before the first response" in errors
    assert process.returncode == FAILED


def test_an_interrupt_before_the_server_has_said_anything(silent: str) -> None:
    with started("-m", "known", "-u", silent) as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=RUN_S)
    assert process.returncode != 0

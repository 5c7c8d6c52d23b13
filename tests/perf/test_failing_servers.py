"""Servers that are not there, fail, end or stand in the way: one message with the cause, and never a hang."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.cli.perf import perf
from naiad.perf.load import observer, stall
from naiad.perf.options import parse_perf
from naiad.perf.run import PerfRun
from naiad.perf.target import kserve_http, question
from naiad.perf.target.protocol import TargetError
from naiad.perf.target.services import tfserving
from naiad.testing import serving
from support.certificates import new_authority
from support.perf_peer import peer
from support.perf_runs import RUN_S, measure, measure_level, run_command, started, wait_for_line, windows
from support.served_models import identity, write_model

FAILED = 99
SOON_S = 8
"""Less than the wait for requests in flight behind the last window."""


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


def test_data_that_do_not_fit_the_model_are_wrong_options(capsys: pytest.CaptureFixture[str]) -> None:
    with peer() as address:
        assert perf(["-m", "known", "-u", address, "--no-collect-metrics", "--shape", "INPUT0:5,5,5"]) == 3
    assert capsys.readouterr().err.startswith('error: The supplied shape of [5,5,5] for input "INPUT0" is incompatible')


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


def test_a_server_that_begins_to_fail() -> None:
    with peer(status=503, fail_after=50) as address:
        run = run_of(address, "-p", 200, "-r", 99, "-s", 0.001)
    (level,) = run.report.levels
    assert level.windows[-1].requests == 0
    count = level.windows[-1].errors.total()
    assert run.failure == (
        f"the server answers nothing but errors any more: all {count} requests of the last window failed, {count} of "
        "them with HTTP 503: the peer was told to fail"
    )


def test_a_server_that_does_not_tell_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "SETTLE_S", 0.1)
    with peer(mute_statistics=1) as address:
        level = measure_level("-m", "known", "-u", address, *windows(100))
    assert level.merged.server is None
    assert level.notes == [
        "the server's counts are missing: it did not answer the request for its statistics before the next window "
        "ended; use a longer --measurement-interval"
    ]


def test_a_server_that_ends(tmp_path: Path) -> None:
    with peer(end_after=500, delay_ms=1) as address:
        text = failure("-m", "known", "-u", address, "-p", 200, "--concurrency-range", 4)
    assert f"cannot connect to {address}: Connection refused" in text


def run_of(address: str, *words: object) -> PerfRun:
    """A run that has ended, however it did."""
    run = PerfRun(parse_perf(["-m", "known", "-u", address, "--no-collect-metrics", *map(str, words)], {}))
    run.run()
    return run


REFUSED = ("cannot connect", "Connection refused")


def test_an_open_loop_goes_on_when_further_connections_are_refused() -> None:
    """Sixteen are there when the server stops taking others, and 30 requests are in flight at a time."""
    with peer(delay_ms=300, refuse_after=2) as address:
        run = run_of(address, "--request-rate-range", 100, "--request-count", 100)
    (level,) = run.report.levels
    assert (run.failure, level.notes) == ("", [])
    assert level.merged.errors.keys() == {REFUSED}
    assert level.merged.requests >= 16
    assert level.merged.requests + level.merged.errors[REFUSED] == 100


def test_a_closed_loop_goes_on_without_one_of_its_connections() -> None:
    with peer(delay_ms=5, refuse_after=10, hang_up_at=20) as address:
        run = run_of(address, "--concurrency-range", 3, "--request-count", 200)
    (level,) = run.report.levels
    assert (run.failure, level.notes) == ("", [])
    refused, lost = level.merged.errors.pop(REFUSED), level.merged.errors.total()
    assert [kind for kind, _ in level.merged.errors] == ["connection lost"]
    assert lost == 1
    # It takes 0.4 s, and the place without a connection tries again every 0.1 s.
    assert 1 <= refused <= 20
    assert level.merged.requests + lost + refused == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("-p", 300),
        ("--request-count", 1000),
        ("--request-rate-range", 100, "-p", 300),
        ("--client-workers", 2, "--concurrency-range", 4, "-p", 300),
    ],
)
def test_a_server_that_stops_responding(monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]) -> None:
    monkeypatch.setattr(stall, "LEAST_S", 0.6)
    with peer(mute_after=30) as address:
        run = run_of(address, "-r", 99, *words)
    assert run.failure.startswith("the server has stopped responding: no response came for ")
    assert run.report.levels[0].merged.requests > 0


def test_a_server_that_is_slower_than_the_windows() -> None:
    with peer(first_ms=1, delay_ms=900) as address:
        run = run_of(address, "--request-rate-range", 10, *windows(150))
    assert run.failure == "no response came within 3 windows of 0.15 s: make them longer with --measurement-interval"


def test_tls_that_breaks(tmp_path: Path) -> None:
    authority = new_authority(tmp_path, "root")
    pair = authority.issue("server")
    words = ("--ssl-https-ca-certificates-file", authority.root, "-p", 200, "-r", 99, "-s", 0.001)
    with peer(cert=pair.cert, key=pair.key, break_tls_after=50) as address:
        text = failure("-m", "known", "-u", f"https://{address}", *words)
    # On a slow machine a whole window without a success comes first.
    assert "TLS failed: WRONG_VERSION_NUMBER: the server sent what is no TLS" in text


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.slow
def test_a_server_that_is_killed(protocol: str, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "id", identity("TYPE_FP32", "4"))
    with serving(tmp_path / "log", tmp_path / "models") as server:
        url = server.url if protocol == "http" else server.grpc_url
        words = (
            "-m",
            "id",
            "-i",
            protocol,
            "-u",
            url,
            "-p",
            300,
            "-r",
            99,
            "-s",
            0.001,
            "-v",
            "--concurrency-range",
            20,
        )
        with started(*words) as process:
            wait_for_line(process, "Pass [1]")
            server.process.kill()
            out, errors = process.communicate(timeout=RUN_S)
    assert process.returncode == FAILED
    assert errors == f"error: cannot connect to {url}: Connection refused\n"
    assert "Concurrency: 20, throughput: " in out


def test_a_server_that_hangs_up() -> None:
    with peer(hang_up_after=50) as address:
        text = failure("-m", "known", "-u", address, "-p", 200)
    assert "closes every connection before it responds" in text


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ((), "the request for the model 'known' at .* does not respond within 0.3 s"),
        (("-i", "grpc"), "the request for the model 'known' at .* opened 0 of 1 connections within 0.3 s"),
        (
            ("--service-kind", "tfserving"),
            "the request for the metadata of 'known' at .* does not respond within 0.3 s",
        ),
    ],
)
def test_a_server_that_says_nothing(
    silent: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], match: str
) -> None:
    monkeypatch.setattr(question, "OPEN_S", 0.3)
    for module in (kserve_http, tfserving):
        monkeypatch.setattr(module, "DESCRIBE_S", 0.3)
    with pytest.raises(TargetError, match=match):
        measure("-m", "known", "-u", silent, *words)


def test_a_server_of_another_protocol() -> None:
    with peer(garbage=1) as address, pytest.raises(TargetError, match=r"expected a response of HTTP/1\.1"):
        measure("-m", "known", "-u", address)


def test_grpc_against_a_server_of_http(tmp_path: Path) -> None:
    with peer() as address, pytest.raises(TargetError, match=r"answered in HTTP/1\.1, expected gRPC over HTTP/2"):
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


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--client-workers", 2)])
def test_a_second_interrupt_ends_the_run_at_once(words: tuple[object, ...]) -> None:
    """The first one waits for requests in flight, for some seconds at most."""
    given = ("--concurrency-range", 2, "-p", 200, "-r", 99, "-s", 0.001, "-v", *words)
    with peer(mute_after=50) as address, started("-m", "known", "-u", address, *given) as process:
        wait_for_line(process, "throughput: 0 infer/sec")
        process.send_signal(signal.SIGINT)
        wait_for_line(process, "2 requests in flight; Ctrl-C again ends at once", is_error=True)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SOON_S)
    assert (process.returncode, errors) == (130, "")


def test_an_interrupt_before_the_server_has_said_anything(silent: str) -> None:
    with started("-m", "known", "-u", silent) as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=RUN_S)
    assert process.returncode != 0

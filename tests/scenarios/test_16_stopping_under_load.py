"""The server is told to stop under load: whoever was taken is answered, and nobody fails inside the drain window."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from naiad.testing import RunningServer, serving, wait_until
from support.served_models import identity, numbers, write_model
from support.traffic import Traffic

WAITING = 40


def is_ready(server: RunningServer) -> bool:
    return server.get("/v2/health/ready").status == 200


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_request_fails_inside_the_window(tmp_path: Path, number: signal.Signals) -> None:
    """Callers that go when the server is not ready any more, as whoever spreads the load has it."""
    write_model(tmp_path / "models", "m", identity(delay_ms=2))
    with serving(tmp_path / "log", tmp_path / "models", "--shutdown-delay=6") as server:
        with Traffic(server, "m", http=3, grpc=3) as traffic:
            wait_until(lambda: traffic.answered > 100, 10, "callers are answered")
            server.signal(number)
            wait_until(lambda: not is_ready(server), 5, "it is not ready any more")
            before = traffic.answered
            wait_until(lambda: traffic.answered > before + 100, 5, "callers are answered inside the window")
        assert traffic.failures == []
        assert server.wait_exit() == 0
    assert "Traceback" not in server.log


def has_taken_all(server: RunningServer) -> bool:
    """While some wait, one runs; all others wait or were answered."""
    page = server.metrics_page()
    waiting, answered = (
        next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(f'{name}{{model="m",'))
        for name in ("nv_inference_pending_request_count", "nv_inference_request_success")
    )
    return waiting > 0 and waiting + answered >= WAITING - 1


def test_whoever_waits_is_answered(tmp_path: Path) -> None:
    """Without a window: what was taken before, the running one and those in the queue."""
    write_model(tmp_path / "models", "m", identity(delay_ms=20))
    with (
        serving(tmp_path / "log", tmp_path / "models") as server,
        ThreadPoolExecutor(WAITING) as callers,
    ):
        asked = [callers.submit(server.infer, "m", numbers([i])) for i in range(WAITING)]
        wait_until(lambda: has_taken_all(server), 10, "all of them are taken")
        server.signal()
        answers = [one.result(20) for one in asked]
        assert server.wait_exit() == 0
    assert [answer.json()["outputs"][0]["data"] for answer in answers] == [[i] for i in range(WAITING)]

"""``--log-verbose 1``: a line about every HTTP request, also about those with a head that was seen before."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from naiad.frontends.http.server.access_log import log_requests
from naiad.frontends.http.v2.router import Router
from naiad.telemetry.logs.server_log import verbose_level
from naiad.testing import write_model
from support.http_application import House, Peer, identity_config, play


def test_every_request_is_logged_and_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_model(tmp_path, "m", identity_config(("0", "TYPE_FP32", "[ 1 ]")))
    caplog.set_level(verbose_level(1), "naiad")

    async def scenario(house: House, peer: Peer) -> None:
        with house.peer(log_requests(Router(house.engine))) as logged:
            assert [(await logged.ask("GET", "/v2/health/live")).status for _ in range(3)] == [200, 200, 200]
            assert (await logged.ask("POST", "/v2/models/m/infer", b"{}")).status == 400
        lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("HTTP request")]
        assert lines[:3] == ["HTTP request: GET /v2/health/live, 0 bytes"] * 3
        assert lines[3:] == ["HTTP request: POST /v2/models/m/infer, 2 bytes"]
        assert all(r.levelno == logging.DEBUG for r in caplog.records if "HTTP request" in r.getMessage())

    play(tmp_path, scenario)

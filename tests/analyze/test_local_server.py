"""The server that an analysis starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from naiad.analyze.measure.local import LocalServer
from naiad.testing import wait_until

STARTS = """
import sys, time
from pathlib import Path
from naiad.analyze.measure.local import LocalServer

server = LocalServer("naiad", Path(sys.argv[1]), (), {}, None)
server.wait_ready(lambda passed: None)
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_it_ends_with_an_analysis_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", STARTS, str(tmp_path / "models")]
    (tmp_path / "models").mkdir()
    analysis = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert analysis.stdout is not None
        server = psutil.Process(int(analysis.stdout.readline()))
    finally:
        analysis.kill()
        analysis.communicate()
    wait_until(lambda: not server.is_running(), 30, "the server ends")


@pytest.mark.parametrize("flag", ["log-info=false", "log-file=LOG", "allow-metrics=false", "allow-grpc=false"])
def test_it_is_found_whatever_its_log_says(flag: str, tmp_path: Path) -> None:
    flags = (f"--{flag.replace('LOG', str(tmp_path / 'log'))}",)
    server = LocalServer("naiad", tmp_path, flags, {}, None)
    try:
        server.wait_ready(lambda passed: None)
        with urlopen(f"http://{server.http}/v2/health/ready") as response:
            assert response.status == 200
        assert bool(server.metrics) == (flag != "allow-metrics=false")
        assert bool(server.grpc) == (flag != "allow-grpc=false")
    finally:
        server.stop()


def test_another_server_gets_ports_of_its_own(tmp_path: Path) -> None:
    program, models = tmp_path / "tritonserver", tmp_path / "models"
    models.mkdir()
    # The reference's server ends where two of its ports are 0.
    program.write_text(f'#!/bin/sh\ncase "$*" in *-port=0*) exit 1;; esac\nexec {sys.executable} -m naiad serve "$@"\n')
    program.chmod(0o755)
    server = LocalServer(str(program), models, (), {}, None)
    try:
        server.wait_ready(lambda passed: None)
        assert len({server.http, server.grpc, server.metrics}) == 3
    finally:
        server.stop()

"""The server that an analysis starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

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

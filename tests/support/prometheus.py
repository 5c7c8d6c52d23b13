"""A real Prometheus for tests: on a free port of this machine, ended by whoever began it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from naiad.testing.waiting import wait_until
from support.redis_server import free_port

START_S = 30.0
STOP_S = 20.0
FOLDER = os.environ.get("NAIAD_PROMETHEUS", "")


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``; "" where there is none."""
    return shutil.which(name, path=FOLDER or None) or ""


needs_prometheus = pytest.mark.skipif(
    not (program("prometheus") and program("promtool")),
    reason="there is no prometheus here: apt-get install prometheus, or name its folder in NAIAD_PROMETHEUS",
)


def promtool(*arguments: object) -> None:
    """Run ``promtool``, and fail with its output where it fails."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query.

        Raises:
            AssertionError: Prometheus refuses the expression.
        """
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}", timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from None


@contextmanager
def running_prometheus(folder: Path, config: Path) -> Iterator[Prometheus]:
    """A Prometheus that is ready, with a configuration."""
    port = free_port()
    command = [program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    log_file = folder / "prometheus.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        found = Prometheus(port)
        wait_until(lambda: process.poll() is not None or found.is_ready(), START_S, "Prometheus is ready")
        assert process.poll() is None, log_file.read_text()
        yield found
    finally:
        process.kill()
        process.wait(STOP_S)

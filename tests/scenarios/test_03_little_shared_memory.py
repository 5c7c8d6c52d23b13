"""Sixteen workers and next to no shared memory: the server serves, and says at most once what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from naiad.testing import server_environment
from support.python_environments import write_script
from support.python_models import DOUBLES, client_of, write_python_model

WORKERS = 16
# 2 MB there and 2 MB back, for sixteen at once.
LARGE = 500_000
# Runs before anything else in every Python, that of the workers included.
WITHOUT_MEMORY = "import os\ndel os.memfd_create\n"
WITHOUT_FILES = """
import tempfile
def refused(*_, **__):
    raise OSError(28, "No space left on device")
tempfile.TemporaryFile = refused
"""
SIXTY_FOUR = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
UNWRITABLE = "mount -t tmpfs -o ro,size=64m tmpfs /dev/shm"


def unshare() -> str:
    """A command that runs another with mounts of its own; the test is skipped where that is not allowed."""
    for command in ("unshare -m", "unshare -rm"):
        words = [*command.split(), "sh", "-c", SIXTY_FOUR]
        if shutil.which("unshare") and subprocess.run(words, capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip("programs with mounts of their own cannot be started here (unshare -m)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "mount", "warnings"),
    [
        ("", SIXTY_FOUR, 0),
        ("", UNWRITABLE, 0),
        (WITHOUT_MEMORY, SIXTY_FOUR, 1),
        (WITHOUT_MEMORY, UNWRITABLE, 1),
        (WITHOUT_MEMORY + WITHOUT_FILES, "", 1),
    ],
    ids=["64 MB", "unwritable", "64 MB of files", "files elsewhere", "nothing at all"],
)
def test_sixteen_workers(tmp_path: Path, hook: str, mount: str, warnings: int) -> None:
    write_python_model(tmp_path / "models", "doubles", DOUBLES, count=WORKERS)
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(hook)
    paths = [str(tmp_path / "hook"), *filter(None, [os.environ.get("PYTHONPATH")])]
    options: dict[str, object] = {"env": {**server_environment(), "PYTHONPATH": os.pathsep.join(paths)}}
    if mount:
        # Takes the place of the program that is started, and starts it.
        start = f'exec {unshare()} sh -c \'{mount}; exec "$0" "$@"\' {sys.executable} "$@"'
        options["executable"] = str(write_script(tmp_path / "start", start))
    with client_of(tmp_path / "models", tmp_path / "log", **options) as client, ThreadPoolExecutor(WORKERS) as pool:

        def ask(n: int) -> bool:
            x = np.full((1, LARGE), n, np.float32)
            return bool((client.infer_array("doubles", x) == 2 * n).all())

        for _ in range(2):
            assert all(pool.map(ask, range(2 * WORKERS)))
        assert len(client.children()) == WORKERS
        assert client.grpc.is_server_ready()
    found = re.findall(r"^W.*", client.server.log, re.MULTILINE)
    assert len(found) == warnings, found
    assert all("memory" in line for line in found)

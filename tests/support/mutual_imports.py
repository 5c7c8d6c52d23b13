"""Two packages that import each other, as parts of frameworks do: threads that import both at once get in each other's
way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_FIRST = """
import time
import began
began.first.set()
# The other import waits for this one by then, if it may begin.
if began.second.wait(0.5):
    time.sleep(0.2)
from second.part import PART
"""
_SECOND = """
import began
began.second.set()
began.first.wait(0.5)
import first
"""


def run_beside_packages(folder: Path, code: str, *arguments: str) -> str:
    """What a program prints that can import ``first`` and ``second.part``, both of which have ``PART = 'found'``."""
    for name in ("first", "second"):
        (folder / name).mkdir()
    (folder / "began.py").write_text("import threading\nfirst, second = threading.Event(), threading.Event()\n")
    (folder / "first" / "__init__.py").write_text(_FIRST)
    (folder / "second" / "__init__.py").write_text(_SECOND)
    (folder / "second" / "part.py").write_text("PART = 'found'\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

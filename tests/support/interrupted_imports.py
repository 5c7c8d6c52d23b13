"""A command that is interrupted while it imports its modules."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from naiad.testing import server_environment


def interrupted_import(words: Sequence[str], folder: Path, module: str, limit_s: float) -> tuple[int, str]:
    """Send SIGINT to ``naiad WORDS`` when it has imported a module; its exit code, and what it wrote to stderr then.

    Args:
        folder: where it runs.
        limit_s: seconds that it may take to end.
    """
    line = [sys.executable, "-X", "importtime", "-m", "naiad", *words]
    with subprocess.Popen(line, cwd=folder, stderr=subprocess.PIPE, text=True, env=server_environment()) as process:
        assert process.stderr is not None
        try:
            for imported in process.stderr:
                if imported.endswith(f" {module}\n"):
                    break
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=limit_s)
        finally:
            process.kill()
    return process.returncode, errors

"""Servers of the tests that are programs of their own, so that they take no time from the loop under test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_S = 10


@contextmanager
def running(program: Path, words: Sequence[str]) -> Iterator[str]:
    """A running program that prints its port first and ends with its input: its ``host:port``."""
    command = [sys.executable, str(program), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()
            process.wait(STOP_S)

"""Servers of many models, whose frameworks take long to import on a machine that is busy with other tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from naiad.testing.server import RunningServer, start_server

READY_S: Final = 240.0


@contextmanager
def serving_large(log_file: Path, *arguments: object) -> Iterator[RunningServer]:
    """A server that is ready; it has to end with 0 when the block is left."""
    server = start_server(log_file, *arguments)
    try:
        server.wait_for(" is ready: ", READY_S)
        server.wait_ready()
        yield server
        assert server.stop() == 0, server.log
    finally:
        server.kill()

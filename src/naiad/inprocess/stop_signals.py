"""SIGINT and SIGTERM while a program serves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals(stopped: threading.Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set ``stopped``; a second one does what it did before. For the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: Any) -> None:
        restore()
        stopped.set()

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()

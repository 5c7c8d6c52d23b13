"""What Ctrl-C does to a measurement."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from naiad.perf.load.stop import Stop


class Interrupts:
    """While the block runs, the first signal asks for an end in order, and the second one ends the block at once.

    Args:
        stop: set by the first signal.
        numbers: of the signals.
    """

    def __init__(self, stop: Stop, numbers: tuple[signal.Signals, ...] = (signal.SIGINT,)) -> None:
        self._stop = stop
        self._numbers = numbers
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        try:
            for number in self._numbers:
                self._before[number] = signal.signal(number, self._handle)
        except ValueError:
            # Not the main thread: whoever runs this there stops it otherwise.
            self._before.clear()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_wanted:
            raise KeyboardInterrupt
        self._stop.is_wanted = True

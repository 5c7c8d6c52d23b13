"""The figures of the server as a whole."""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from naiad.engine.engine import Engine


class ServerFigures:
    """Reads the figures; ``read`` is called once a second while somebody looks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._process = psutil.Process()
        self._before = (monotonic(), self._cpu_s())

    def _cpu_s(self) -> float:
        used = self._process.cpu_times()
        return used.user + used.system

    def read(self) -> dict[str, Any]:
        """The time ("t", seconds since 1970), requests in flight and their bytes, memory, and processor time used."""
        begun, used = self._before
        now = self._before = (monotonic(), self._cpu_s())
        budget = self._engine.budget
        return {
            "t": round(time(), 1),
            "f": budget.requests,
            "fb": budget.bytes,
            "mem": self._process.memory_info().rss >> 20 << 20,
            "cpu": round((now[1] - used) / max(1e-3, now[0] - begun), 2),
        }

"""Has loads wait while requests take every core, so that a load does not lengthen the latency of these requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from naiad.processes.affinity import server_cores
from naiad.processes.cpu_quota import GROUP, quota_cores, used_s

logger = logging.getLogger("naiad")

WINDOW_S: Final = 0.2
"""The use of the cores is read over so many seconds: the system counts it in hundredths of a second."""
SPARE_CORES: Final = 0.5
"""A load begins when so many cores had nothing to do."""


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """Processor time in seconds up to the moment ``at_s`` of a clock that only goes forward.

    Attributes:
        idle_s: of the cores that this process may use.
        left_s: what the control group of a container allows and did not use; None without a limit.
    """

    at_s: float
    idle_s: float
    left_s: float | None

    def spare_since(self, before: CoreTimes) -> float:
        """How many cores had nothing to do since ``before``."""
        passed_s = max(self.at_s - before.at_s, 1e-9)
        spare_s = self.idle_s - before.idle_s
        if self.left_s is not None and before.left_s is not None:
            spare_s = min(spare_s, self.left_s - before.left_s)
        return spare_s / passed_s


def read_core_times(group: Path = GROUP) -> CoreTimes:
    """The times now; ``group`` is the folder of the control group."""
    import psutil

    usable = server_cores()
    idle_s = sum(
        times.idle + getattr(times, "iowait", 0.0)
        for core, times in enumerate(psutil.cpu_times(percpu=True))
        if core in usable or not usable
    )
    at_s = monotonic()
    return CoreTimes(at_s, idle_s, _left_s(group, at_s))


def _left_s(group: Path, at_s: float) -> float | None:
    quota, used = quota_cores(group), used_s(group)
    return None if quota is None or used is None else quota * at_s - used


class SpareCore:
    """Lets a load begin when a core is free, or when no request is under way.

    Args:
        longest_s: how long a load waits at most; 0 for never.
        in_flight: how many requests are under way.
        read: gives the times.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        longest_s: float,
        in_flight: Callable[[], int],
        read: Callable[[], CoreTimes] = read_core_times,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._longest_s = longest_s
        self._in_flight = in_flight
        self._read = read
        self._sleep = sleep

    async def wait(self, what: str, is_wanted: Callable[[], bool]) -> None:
        """Wait until the load of ``what`` may begin, or is not wanted any more."""
        if not self._longest_s or not self._in_flight():
            return
        first = before = self._read()
        is_logged = False
        while is_wanted() and self._in_flight():
            await self._sleep(WINDOW_S)
            now = self._read()
            if now.spare_since(before) >= SPARE_CORES:
                return
            if now.at_s - first.at_s >= self._longest_s:
                logger.info("loading %s without a free core, after %g s", what, self._longest_s)
                return
            if not is_logged:
                is_logged = True
                logger.info(
                    "the load of %s waits at most %g s for a free core: requests use all of them", what, self._longest_s
                )
            before = now

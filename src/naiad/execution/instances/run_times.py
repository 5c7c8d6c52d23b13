"""How long runs of a sample take: measured once for a version, on the first of its instances that is warm."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

MOST_RUNS: Final = 50
LONGEST_S: Final = 2.0
"""How long a measurement goes on; the run that it is in then is the last one."""


class RunTimes:
    """The times of equal runs on one instance.

    Attributes:
        seconds: one number for each run; empty where nothing was measured.
        sample: the name of the sample.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.sample = ""
        self._lock = threading.Lock()
        self._is_taken = False

    @property
    def median_s(self) -> float:
        """The median in seconds.

        Raises:
            StatisticsError: nothing was measured.
        """
        # Imported here: it brings decimal and fractions, of which no other server has a need.
        from statistics import median

        return median(self.seconds)

    def take(self, sample: str, run: Callable[[], Sequence[str]]) -> None:
        """Measure ``run``, which gives the texts of its errors, unless another instance is measured. A failing run ends
        the measurement."""
        with self._lock:
            if self._is_taken:
                return
            self._is_taken = True
        self.sample = sample
        begun = monotonic()
        while len(self.seconds) < MOST_RUNS and monotonic() - begun < LONGEST_S:
            start = monotonic()
            if run():
                self.seconds.clear()
                return
            self.seconds.append(monotonic() - start)

"""The progress of a transfer, as lines of the log."""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import Final

logger = logging.getLogger("naiad")

EVERY_S: Final = 5.0
"""Seconds between two lines about one transfer."""


class TransferProgress:
    """Counts the bytes of one transfer; used by several threads.

    Args:
        what: the name of the transfer in the log.
        total: its bytes in all.
    """

    def __init__(self, what: str, total: int) -> None:
        self.fetched = 0
        self._what = what
        self._total = total
        self._present = 0
        self._begun = self._said = monotonic()
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count bytes that have come from the store."""
        with self._lock:
            self.fetched += count
            self._say_if_due()

    def skip(self, count: int) -> None:
        """Count bytes that the mirror had already."""
        with self._lock:
            self._present += count

    def finish(self) -> None:
        """Log the totals, unless nothing had to be fetched."""
        if self.fetched:
            seconds = monotonic() - self._begun
            kept = f", {shown(self._present)} were there" if self._present else ""
            logger.info("mirrored %s: %s in %.1f s%s", self._what, shown(self.fetched), seconds, kept)

    def _say_if_due(self) -> None:
        now = monotonic()
        if now - self._said < EVERY_S:
            return
        self._said = now
        done = self.fetched + self._present
        rate = self.fetched / (now - self._begun)
        percent = 100 * done // max(1, self._total)
        logger.info(
            "mirroring %s: %s of %s (%d%%), %s/s", self._what, shown(done), shown(self._total), percent, shown(rate)
        )


def shown(count: float) -> str:
    """A number of bytes for people, such as ``1.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"

"""The processor time that the control group of a container allows.

Source: the kernel's document on control groups (``cgroup-v2``, the controller of the processor).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

GROUP: Final = Path("/sys/fs/cgroup")
"""The control group as its own processes see it."""


def quota_cores(group: Path = GROUP) -> float | None:
    """How many cores' worth of time the group may use; None without a limit."""
    try:
        limit, _, period = (group / "cpu.max").read_text().partition(" ")
        return int(limit) / int(period)
    except (OSError, ValueError):
        # No such file outside containers, and the word "max" where there is no limit.
        return None


def used_s(group: Path = GROUP) -> float | None:
    """The processor time in seconds that the group has used; None where the system does not say."""
    try:
        used = dict(line.split(" ", 1) for line in (group / "cpu.stat").read_text().splitlines())
        return int(used["usage_usec"]) / 1e6
    except (OSError, ValueError, KeyError):
        return None

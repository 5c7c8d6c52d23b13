"""Where the instances of a model run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

THREAD: Final = "thread"
PROCESS: Final = "process"
SHARED: Final = "shared"


@dataclass(frozen=True, slots=True)
class Execution:
    """``mode`` is ``thread``, ``process`` or ``shared``; ``group`` names one of several shared processes."""

    mode: str
    group: str = ""

"""Whether tests can run on a GPU, and in which words they are skipped where they cannot."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from naiad.gpus.driver import gpus

TOLERANCE: Final = 1e-3
"""How far a GPU may differ from the processor: it sums in another order."""
TOLERANCE_REASON: Final = "the results are compared with those of the processor"


def lacking(package: str) -> str:
    """What a test on a GPU lacks here, "" for nothing."""
    if not gpus():
        return "no test ran on a GPU: this machine has none"
    return "" if find_spec(package) else f"{package} is not installed"

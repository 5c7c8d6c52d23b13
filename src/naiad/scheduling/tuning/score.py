"""How much a measurement counts less that breaks a limit; ``naiad analyze`` and self-tuning score alike."""

from __future__ import annotations

import math
from typing import Final

_PENALTY: Final = 2.0
"""How much worse a configuration counts that breaks a limit, for each e-fold beyond it: in logarithms."""
_BROKEN: Final = 0.05


def excess(value: float, most: float) -> float:
    """The penalty for a value above the most that is allowed: 0 within it, the more the further beyond."""
    return 0.0 if value <= most else _BROKEN + _PENALTY * math.log(value / max(most, 1e-9))


def shortfall(value: float, least: float) -> float:
    """The penalty for a positive value below the least that is allowed, as in ``excess``."""
    return 0.0 if value >= least else _BROKEN + _PENALTY * math.log(least / value)

"""``nav.python.optimize``: a Python callable."""

from naiad.navigator.configuration import OptimizationProfile
from naiad.navigator.optimize import optimize

__all__ = ["OptimizationProfile", "optimize"]

"""``nav.onnx.optimize``: a file of ONNX."""

from naiad.navigator.configuration import OptimizationProfile
from naiad.navigator.optimize import optimize

__all__ = ["OptimizationProfile", "optimize"]

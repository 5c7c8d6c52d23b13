"""``nav.torch.optimize``: a torch.nn.Module."""

from naiad.navigator.configuration import OptimizationProfile
from naiad.navigator.optimize import optimize

__all__ = ["OptimizationProfile", "optimize"]

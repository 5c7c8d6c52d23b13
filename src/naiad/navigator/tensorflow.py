"""``nav.tensorflow.optimize``: a Keras model, or the folder of a SavedModel."""

from naiad.navigator.configuration import OptimizationProfile
from naiad.navigator.optimize import optimize

__all__ = ["OptimizationProfile", "optimize"]

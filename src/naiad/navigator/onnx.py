"""``nav.onnx.optimize``: a file of ONNX."""

from naiad.navigator.optimize import optimize

__all__ = ["optimize"]

"""``nav.python.optimize``: a Python callable."""

from naiad.navigator.optimize import optimize

__all__ = ["optimize"]

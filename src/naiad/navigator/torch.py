"""``nav.torch.optimize``: a torch.nn.Module."""

from naiad.navigator.optimize import optimize

__all__ = ["optimize"]

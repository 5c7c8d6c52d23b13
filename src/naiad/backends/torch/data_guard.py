"""Stops a trial run of a module's code where the code looks at values of tensors: what it then does depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

_TENSOR: Final = torch.Tensor
_LOOKS: Final = frozenset(
    (
        *(_TENSOR.item, _TENSOR.tolist, _TENSOR.numpy, _TENSOR.is_nonzero, _TENSOR.__bool__, _TENSOR.__int__),
        *(_TENSOR.__float__, _TENSOR.__complex__, _TENSOR.__index__, _TENSOR.__contains__, _TENSOR.__array__),
        *(_TENSOR.equal, _TENSOR.allclose, _TENSOR.nonzero, _TENSOR.argwhere, _TENSOR.masked_select, _TENSOR.unique),
        *(torch.is_nonzero, torch.equal, torch.allclose, torch.nonzero, torch.argwhere, torch.masked_select),
        *(torch.unique, torch.unique_consecutive, _TENSOR.unique_consecutive),
    )
)
"""What gives values, or shapes that depend on them, to the code that calls it."""
_ROWS_OF_MASKS: Final = (torch.bool, torch.uint8)


class DataGuard(TorchFunctionMode):  # type: ignore[misc]
    """Within it, functions of torch that show values of tensors raise; see ``has_looked``.

    Attributes:
        has_looked: whether one was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_looked = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of torch for the code within the block, unless it shows values."""
        if func in _LOOKS or _selects_by_mask(func, args):
            self.has_looked = True
            raise RuntimeError("the code looks at the values of its tensors")
        return func(*args, **(kwargs or {}))


def _selects_by_mask(func: Callable[..., Any], args: Any) -> bool:
    """Whether the number of rows or values in the result depends on values."""
    if func is torch.where:
        return len(args) == 1
    if func is not _TENSOR.__getitem__:
        return False
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(isinstance(one, _TENSOR) and one.dtype in _ROWS_OF_MASKS for one in index)


def has_compiled_code(module: torch.nn.Module) -> bool:
    """Whether a part of a module is TorchScript, into which a ``DataGuard`` does not see."""
    return any(isinstance(part, (torch.jit.ScriptModule, torch.jit.ScriptFunction)) for part in module.modules())

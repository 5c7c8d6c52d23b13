"""Stops a trial run of a module's code where the code looks at values of tensors: what it then does depends on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


class DataGuard:
    """Within it, functions of torch that show values of tensors raise.

    Attributes:
        has_looked: whether one was called.
    """

    def __init__(self) -> None:
        self.has_looked = False
        self._mode: Any = None

    def __enter__(self) -> DataGuard:
        self._mode = _mode(self._check)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)
        self._mode = None

    def _check(self, function: Callable[..., Any], args: Any) -> None:
        if function in _looking() or _selects_by_mask(function, args):
            self.has_looked = True
            raise RuntimeError("the code looks at the values of its tensors")


def has_compiled_code(module: Any) -> bool:
    """Whether a part of a module is TorchScript, into which a ``DataGuard`` does not see."""
    import torch

    return any(isinstance(part, (torch.jit.ScriptModule, torch.jit.ScriptFunction)) for part in module.modules())


def _mode(check: Callable[[Callable[..., Any], Any], None]) -> Any:
    """What torch asks before each of its functions."""
    from torch.overrides import TorchFunctionMode

    class DataChecks(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            check(func, args)
            return func(*args, **(kwargs or {}))

    return DataChecks()


@cache
def _looking() -> frozenset[Callable[..., Any]]:
    """What gives values, or shapes that depend on them, to the code that calls it."""
    import torch

    t = torch.Tensor
    return frozenset(
        (
            *(t.item, t.tolist, t.numpy, t.is_nonzero, t.__bool__, t.__int__, t.__float__, t.__complex__),
            *(t.__index__, t.__contains__, t.__array__, t.equal, t.allclose, t.nonzero, t.argwhere),
            *(t.masked_select, t.unique, t.unique_consecutive, torch.is_nonzero, torch.equal, torch.allclose),
            *(torch.nonzero, torch.argwhere, torch.masked_select, torch.unique, torch.unique_consecutive),
        )
    )


def _selects_by_mask(function: Callable[..., Any], args: Any) -> bool:
    """Whether the number of rows or values in the result depends on values."""
    import torch

    if function is torch.where:
        return len(args) == 1
    if function is not torch.Tensor.__getitem__:
        return False
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8) for one in index)

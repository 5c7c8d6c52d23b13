"""``@batch``: a function that runs the requests of several callers at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

from naiad.errors import InvalidArgumentError

DEFAULT_ROWS: Final = 64
_MARK: Final = "__naiad_batch__"

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class BatchRule:
    """How many rows a batch has at most, and how long its first request waits for others, in milliseconds."""

    max_rows: int = DEFAULT_ROWS
    max_delay_ms: float = 0.0


@overload
def batch(function: _Function) -> _Function:
    """``@batch``."""


@overload
def batch(*, max_rows: int = ..., max_delay_ms: float = ...) -> Callable[[_Function], _Function]:
    """``@batch(max_rows=32)``."""


def batch(function: Any = None, *, max_rows: int = DEFAULT_ROWS, max_delay_ms: float = 0.0) -> Any:
    """Let a bound function take batches: the first dimension of every array is then the batch.

    The shapes of its signature are those of one row, so ``FP32[16]`` is an array of shape [rows, 16]. It returns as
    many rows as it was given.

    Args:
        function: the function, or a ``predict`` method.
        max_rows: the most rows of one call.
        max_delay_ms: how long a request waits for others to come, in milliseconds. With 0 a batch has what came while
            the call before it ran.

    Raises:
        InvalidArgumentError: ``max_rows`` is less than 1, or ``max_delay_ms`` less than 0.
    """
    if max_rows < 1 or max_delay_ms < 0:
        raise InvalidArgumentError(
            f"found @batch(max_rows={max_rows}, max_delay_ms={max_delay_ms}), expected at least 1 row and no negative "
            "delay"
        )
    rule = BatchRule(max_rows, max_delay_ms)

    def mark(marked: _Function) -> _Function:
        setattr(marked, _MARK, rule)
        return marked

    return mark if function is None else mark(function)


def batch_rule(function: Any) -> BatchRule | None:
    """The rule of a function with ``@batch``; None for one without it."""
    found = getattr(function, _MARK, None)
    return found if isinstance(found, BatchRule) else None

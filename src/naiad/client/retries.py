"""Retries: when a request is sent again, after which pause, and how many there may be in all."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from naiad.client.errors import ConnectionFailedError, ResponseError
from naiad.errors import InvalidArgumentError, NaiadError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a client tries again.

    A request is sent again when the server could not be reached, said that it is too busy (429, 503), or closed the
    connection. The last only where the server may run it twice: not in a sequence.

    Attributes:
        attempts: how often a request is sent at most; 1 for no retries.
        first_pause_s: the longest pause before the first retry, which doubles for each further one. The pause is a
            random part of it, so that callers do not return together.
        longest_pause_s: the longest pause.
        budget: the share of requests that may be retries, over time: a server that fails for all gets not even more
            requests.
    """

    attempts: int = 3
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0
    budget: float = 0.2

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.first_pause_s, self.longest_pause_s, self.budget) < 0:
            raise InvalidArgumentError(f"found {self}, expected at least one attempt and no negative number")

    def pause_s(self, attempt: int, error: NaiadError) -> float:
        """How long to wait after the failure of an attempt, counted from 1."""
        longest = min(self.longest_pause_s, self.first_pause_s * 2 ** (attempt - 1))
        pause = random.uniform(0, longest)
        return max(pause, error.retry_after_s) if isinstance(error, ResponseError) else pause


NO_RETRIES: Final = RetryPolicy(attempts=1)
_SAVED: Final = 10.0


class RetryBudget:
    """Counts requests and retries of one client: each request saves a part of a retry, up to ten retries."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self._saved = _SAVED

    def requested(self) -> None:
        """Count a request that is not a retry."""
        self._saved = min(_SAVED, self._saved + self.policy.budget)

    def take(self, attempt: int, error: NaiadError, *, repeatable: bool) -> bool:
        """Whether an attempt that failed may be followed by another one."""
        if attempt >= self.policy.attempts or self._saved < 1 or not _may_repeat(error, repeatable):
            return False
        self._saved -= 1
        return True


def _may_repeat(error: NaiadError, repeatable: bool) -> bool:
    if isinstance(error, ResponseError):
        return error.may_pass_later
    return isinstance(error, ConnectionFailedError) and (repeatable or not error.was_sent)

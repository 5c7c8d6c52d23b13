"""Calls by a model in a process that wait until the model that they name is loaded for them. On the loop only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from naiad.errors import NaiadError

_Call = TypeVar("_Call")


class ModelWait(Protocol):
    """Somebody who waits for a model."""

    def leave(self) -> None:
        """Wait no longer; nobody is told."""


class Waits(Protocol):
    """Who has models loaded for calls."""

    def wait_for_model(
        self, error: NaiadError, size: int, go_on: Callable[[NaiadError | None], None]
    ) -> ModelWait | None:
        """Where ``error`` says that a model can be loaded for a request, have that done; None where it does not.

        ``go_on`` is called once, later: with None when the model serves, or with an error. ``size`` is how many bytes
        wait.

        Raises:
            UnavailableError: too many wait, or a load has just failed.
        """


class WaitingCalls(Generic[_Call]):
    """The waiting calls of one worker, by number. It refers to nothing else: reference cycles would live on until the
    garbage collector runs."""

    def __init__(self) -> None:
        self._waits: dict[int, tuple[_Call, ModelWait]] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def wait(
        self,
        models: Waits,
        number: int,
        call: _Call,
        size: int,
        error: NaiadError,
        told: Callable[[int, _Call, NaiadError | None], None],
    ) -> bool:
        """Where the model can be loaded that ``error`` misses, wait for it; False where it cannot.

        ``size`` is how many bytes the call holds. ``told`` is called once, later: with None when the model serves, or
        with an error.

        Raises:
            UnavailableError: too many wait, or a load has just failed.
        """

        def go_on(problem: NaiadError | None) -> None:
            del self._waits[number]
            told(number, call, problem)

        wait = models.wait_for_model(error, size, go_on)
        if wait is None:
            return False
        self._waits[number] = call, wait
        return True

    def leave(self, number: int) -> _Call | None:
        """A call waits no longer; None when it does not wait."""
        found = self._waits.pop(number, None)
        if found is None:
            return None
        found[1].leave()
        return found[0]

    def leave_all(self) -> list[tuple[int, _Call]]:
        """No call waits any longer; gives them back."""
        waits, self._waits = self._waits, {}
        for _, wait in waits.values():
            wait.leave()
        return [(number, call) for number, (call, _) in waits.items()]

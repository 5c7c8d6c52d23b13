"""Calls by a model in a process that wait until the model that they name is loaded for them. On the loop only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from naiad.errors import NaiadError
from naiad.execution.model_directory import ModelWait, Waits

_Call = TypeVar("_Call")


class WaitingCalls(Generic[_Call]):
    """The waiting calls of one worker, by number. Refers to nothing else: reference cycles would live on until the
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
        resume: Callable[[int, _Call, NaiadError | None], None],
    ) -> bool:
        """Wait for the model whose absence is ``error``; False where it cannot be loaded.

        ``size`` is the number of bytes that the call holds. ``resume`` is called once, later: with None when the model
        serves, or with an error.

        Raises:
            UnavailableError: too many calls wait, or a load has just failed.
        """

        def done(problem: NaiadError | None) -> None:
            # First: ``resume`` may make the call wait once more.
            del self._waits[number]
            resume(number, call, problem)

        wait = models.wait_for_model(error, size, done)
        if wait is None:
            return False
        self._waits[number] = call, wait
        return True

    def leave(self, number: int) -> _Call | None:
        """End the wait of a call; None when it does not wait."""
        found = self._waits.pop(number, None)
        if found is None:
            return None
        found[1].leave()
        return found[0]

    def leave_all(self) -> list[tuple[int, _Call]]:
        """End the wait of all calls; returns them with their numbers."""
        waits, self._waits = self._waits, {}
        for _, wait in waits.values():
            wait.leave()
        return [(number, call) for number, (call, _) in waits.items()]

"""Running a forest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.fil.forest import reason_of
from naiad.backends.fil.signature import INPUT, OUTPUT
from naiad.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.backends.fil.forest import Forest
    from naiad.backends.fil.signature import Finish

SMALL_ROWS: Final = 64
"""Batches of fewer rows run on one thread: they take less time than threads need to begin."""


class ForestInstance(Instance):
    """One instance; all of a model share the forest, which a run does not change."""

    def __init__(self, forest: Forest, finish: Finish, threads: int) -> None:
        self._scores = forest.scores
        self._finish = finish
        self._threads = threads

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The output; ``BackendError`` with the library's text when the run fails."""
        rows = inputs[INPUT]
        try:
            scores = self._scores(rows, self._threads if len(rows) >= SMALL_ROWS else 1)
        except Exception as error:
            raise BackendError(f"fil: {type(error).__name__}: {reason_of(error)}") from error
        return {OUTPUT: self._finish(scores)}

    def close(self) -> None:
        """Release the forest."""
        del self._scores

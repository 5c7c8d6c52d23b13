"""Running a forest."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.fil.signature import INPUT, OUTPUT
from naiad.backends.fil.trial_main import reason_of
from naiad.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.backends.fil.forest import Forest
    from naiad.backends.fil.signature import Finish

log = logging.getLogger("naiad")

_LIMIT: Final = re.compile(r"nthread cannot exceed (\d+)")
SMALL_ROWS: Final = 64
"""Batches of fewer rows run on one thread: they take less time than threads need to begin."""


def usable_threads(model: str, forest: Forest, threads: int) -> int:
    """``threads``, or as many as OpenMP allows the calling thread, with a warning.

    treelite refuses every run with more. The limit is OMP_NUM_THREADS, the cores, or what another framework has set.
    """
    if threads == 1:
        return 1
    try:
        forest.scores(np.zeros((1, forest.features), np.float32), threads)
    except Exception as error:
        # Any other failure is left to the requests, which show it to their callers.
        if found := _LIMIT.search(str(error)):
            log.warning("model '%s': parameter 'threads' is %d, OpenMP allows %s here", model, threads, found[1])
            return int(found[1])
    return threads


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

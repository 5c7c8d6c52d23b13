"""The GPU that this process has lost, for its health: only a restart of the process brings it back."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Final

from naiad.errors import GpuLostError
from naiad.worker.runtime.lost_gpu import lost_gpu

logger = logging.getLogger("naiad")


class LostGpus:
    """The loss of a GPU. The threads of instances note it, and the event loop reads it.

    Attributes:
        problem: which GPU was lost, and why; "" for none.
        when_lost: called once, in the thread that notes it; None for nobody.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.when_lost: Callable[[], object] | None = None

    def after(self, model: str, error: BaseException) -> GpuLostError | None:
        """The error for the requests of ``model`` if ``error`` comes from the loss of a GPU, which is logged once."""
        lost = lost_gpu(error)
        return self._note(model, lost) if lost else None

    def _note(self, model: str, lost: str) -> GpuLostError:
        if not self.problem:
            self.problem = f"{lost} is lost to this process, which needs a restart"
            logger.error(
                "%s is lost to process %d, which needs a restart: a run of model '%s' failed there, or one before it "
                "on the same GPU. An index beyond a table does that, for example",
                *(lost, os.getpid(), model),
            )
            if self.when_lost is not None:
                # The loop that it calls may be closed: the server ends already.
                with contextlib.suppress(RuntimeError):
                    self.when_lost()
        return GpuLostError(
            f"model '{model}' failed: {lost} is lost to its process, which needs a restart; an index beyond a table "
            "does that, for example"
        )


lost_gpus: Final = LostGpus()
"""Of this process."""

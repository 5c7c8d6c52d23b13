"""An instance that runs on the event loop itself, for backends whose work costs less than waking a thread would."""

from __future__ import annotations

from collections.abc import Callable

from naiad.backend_api.backend import Instance
from naiad.config.spec import ModelSpec
from naiad.errors import InternalError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.small_batch import SmallBatchGatherer
from naiad.execution.instances.bytes_adapter import with_arrays
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.runner import close_instance, failed_to_start, run_batch


class InlineInstance(ModelInstance):
    """Runs each batch at once, in the caller's thread."""

    gathers = True

    def __init__(self, name: str, spec: ModelSpec, create: Callable[[], Instance]) -> None:
        self.name = name
        self._spec = spec
        self._create = create
        self.prepare = SmallBatchGatherer(spec).gather
        self._instance: Instance | None = None

    def start(self) -> None:
        """Create the instance.

        Raises:
            NaiadError: the instance could not be created.
        """
        try:
            self._instance = with_arrays(self._create(), self._spec)
        except NaiadError:
            raise
        except BaseException as error:
            raise failed_to_start(self.name, error) from error

    @property
    def execute(self) -> Callable[..., object]:
        """The started instance's own ``execute``."""
        if self._instance is None:
            raise InternalError(f"instance '{self.name}' is not started")
        return self._instance.execute

    def run(self, batch: Batch) -> list[Batch]:
        """Run a batch and return its parts, as ``run_batch`` does.

        A large batch is run request by request, as gathering it would block the loop.
        """
        if self._instance is None:
            raise InternalError(f"instance '{self.name}' is not started")
        if batch.inputs is not None or len(batch.requests) == 1 or not batch.splits:
            return run_batch(self._instance, batch, self._spec)
        # ``prepare`` did not gather it: it is large.
        singles = [Batch([request]) for request in batch.requests]
        return [done for single in singles for done in run_batch(self._instance, single, self._spec)]

    def stop(self) -> None:
        """Close the instance."""
        if self._instance is not None:
            close_instance(self._instance, self.name)
            self._instance = None

    def join(self, timeout: float | None = None) -> bool:
        """True: nothing runs in another thread."""
        return True

"""An instance in a thread of its own: batches go in through one queue put, results come back in one loop callback."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic_ns

from naiad.backends.base import Instance
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError
from naiad.execution.batch import Batch
from naiad.execution.gather import check_results, gather

logger = logging.getLogger("naiad")


class InstanceThread:
    """Runs batches one after another in its own thread.

    Args:
        name: of the instance, used for the thread and in the log.
        spec: of the model.
        create: makes the instance; called in the new thread.
        finished: called in the instance's thread with the batches that are done, one call per batch given to ``run``
            (several batches when one was split); it must only pass them on to the loop.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        create: Callable[[], Instance],
        finished: Callable[[InstanceThread, list[Batch]], object],
    ) -> None:
        self.name = name
        self._spec = spec
        self._create = create
        self._finished = finished
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._created = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name=f"naiad-{name}", daemon=True)
        self.run = self._queue.put

    def start(self) -> None:
        """Create the instance and wait until it is there; called by a loading thread.

        Raises:
            NaiadError: the instance could not be created.
        """
        self._thread.start()
        self._created.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self, timeout: float | None = None) -> bool:
        """Let the batch that runs finish, close the instance and end the thread; True when it has ended in time."""
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _main(self) -> None:
        try:
            instance = self._create()
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._created.set()
        get, finished = self._queue.get, self._finished
        while (batch := get()) is not None:
            self._execute(instance, batch)
            finished(self, [batch] if batch.error is None or len(batch.requests) == 1 else self._split(instance, batch))
            del batch
        try:
            instance.close()
        except Exception:
            logger.exception("instance '%s' failed to close", self.name)

    def _split(self, instance: Instance, batch: Batch) -> list[Batch]:
        """A batch failed: run each of its requests alone, so that one poisoned input costs only itself."""
        singles = [Batch([request]) for request in batch.requests]
        for single in singles:
            self._execute(instance, single)
        return singles

    def _execute(self, instance: Instance, batch: Batch) -> None:
        spec = self._spec
        batch.start_ns = batch.input_ns = monotonic_ns()
        try:
            inputs = batch.inputs
            if inputs is None:
                inputs = gather(batch, spec)
                batch.input_ns = monotonic_ns()
            results = instance.execute(inputs, batch.outputs)
            batch.infer_ns = monotonic_ns()
            batch.results = check_results(batch, results, spec)
        except NaiadError as error:
            batch.error = error
        except BaseException as error:
            # Whatever a model raises, SystemExit included, ends its batch and nothing else.
            batch.error = BackendError(f"model '{spec.name}' failed: {type(error).__name__}: {error}")
        batch.end_ns = monotonic_ns()

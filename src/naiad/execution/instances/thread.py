"""An instance in a thread of its own: batches go in through one queue put, results come back in one loop callback."""

from __future__ import annotations

from collections.abc import Callable

from naiad.backend_api.backend import Instance
from naiad.config.spec import ModelSpec
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import SMALL_BYTES
from naiad.execution.batching.small_batch import SmallBatchGatherer
from naiad.execution.instances.batch_queue import BatchQueue
from naiad.execution.instances.bytes_adapter import with_arrays
from naiad.execution.instances.instance_thread import InstanceThread
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.instances.runner import run_batch


class ThreadInstance(ModelInstance):
    """Runs batches one after another in its own thread.

    Args:
        name: of the instance, used for the thread and in the log.
        spec: of the model.
        create: makes the instance; called in the new thread.
        finished: called in the instance's thread with the batches that are done, one call per batch given to ``run``
            (several batches when one was split); it must only pass them on to the loop.
    """

    runs_ahead = True
    gathers = True
    # Small tensors cost less to copy than to refer to.
    regions_from = SMALL_BYTES + 1

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        create: Callable[[], Instance],
        finished: Callable[[ThreadInstance, list[Batch]], object],
    ) -> None:
        self.name = name
        self._spec = spec
        self._create = create
        self.prepare = SmallBatchGatherer(spec).gather
        self._finished = finished
        self._queue = BatchQueue()
        self._thread = InstanceThread(name, self._make, self._serve)

    def start(self) -> None:
        """Create the instance and wait until it is there; called by a loading thread.

        Raises:
            NaiadError: the instance could not be created.
        """
        self._thread.start()

    def stop(self) -> None:
        """Let the thread finish its batches, close the instance and end."""
        self._queue.end()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end that ``stop`` asked for, at most ``timeout`` seconds; True when the thread has ended, or was
        never started."""
        return self._thread.join(timeout)

    def run(self, batch: Batch) -> None:
        """Queue a batch for the thread, which calls ``finished`` with what became of it."""
        self._queue.put(batch)

    def run_ahead(self, batch: Batch) -> None:
        self._queue.put_ahead(batch)

    def drop(self, batch: Batch) -> bool:
        return self._queue.drop(batch)

    def _make(self) -> Instance:
        instance = with_arrays(self._create(), self._spec)
        self.device = instance.device
        return instance

    def _serve(self, instance: Instance) -> None:
        get, finished = self._queue.get, self._finished
        while (batch := get()) is not None:
            finished(self, run_batch(instance, batch, self._spec, places=True))
            # While the thread waits it would hold the batch, with its tensors and regions.
            del batch

"""An instance in a thread of its own: batches go in through one queue put, results come back in one loop callback."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time_ns

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
from naiad.execution.instances.short_runs import ShortRuns, size_of


class ThreadInstance(ModelInstance):
    """Runs batches one after another in its own thread.

    Args:
        name: of the instance, used for the thread and in the log.
        spec: of the model.
        create: makes the instance; called in the new thread.
        finished: called in the instance's thread with the batches that are done, one call per batch given to ``run``
            (several batches when one was split); it must only pass them on to the loop.
        short_runs: learns which batches the event loop runs itself; None where all run in the thread.
    """

    runs_ahead = 1
    gathers = True
    # Small tensors cost less to copy than to refer to.
    regions_from = SMALL_BYTES + 1

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        create: Callable[[], Instance],
        finished: Callable[[ThreadInstance, list[Batch]], object],
        short_runs: ShortRuns | None = None,
    ) -> None:
        self.name = name
        self._spec = spec
        self._create = create
        self.prepare = SmallBatchGatherer(spec).gather
        self._finished = finished
        self._short_runs = short_runs
        self._instance: Instance | None = None
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

    def run(self, batch: Batch) -> list[Batch] | None:
        """Run a batch that is expected to be short; queue another one for the thread, which calls ``finished``."""
        short_runs, instance = self._short_runs, self._instance
        if short_runs is not None and instance is not None and batch.inputs is not None:
            size = size_of(batch.inputs)
            if short_runs.expects(size):
                done = run_batch(instance, batch, self._spec, places=True)
                short_runs.ran_here(size, batch.end_ns - batch.start_ns)
                return done
        self._queue.put(batch)
        return None

    def run_ahead(self, batch: Batch) -> None:
        self._queue.put_ahead(batch)

    def drop(self, batch: Batch) -> bool:
        return self._queue.drop(batch)

    def _make(self) -> Instance:
        instance = with_arrays(self._create(), self._spec)
        self.device = instance.device
        if self._short_runs is not None:
            self._instance = instance
        return instance

    def _serve(self, instance: Instance) -> None:
        get, finished, run = self._queue.get, self._finished, self._run if self._short_runs is None else self._run_timed
        while (batch := get()) is not None:
            finished(self, run(instance, batch))
            # While the thread waits it would hold the batch, with its tensors and regions.
            del batch
        # It is closed in this thread.
        self._instance = None

    def _run(self, instance: Instance, batch: Batch) -> list[Batch]:
        return run_batch(instance, batch, self._spec, places=True)

    def _run_timed(self, instance: Instance, batch: Batch) -> list[Batch]:
        size = -1 if batch.inputs is None else size_of(batch.inputs)
        # The processor time alone: under load the thread waits for the interpreter lock.
        begun_ns = thread_time_ns()
        done = self._run(instance, batch)
        if size >= 0 and self._short_runs is not None:
            self._short_runs.ran_in_thread(size, thread_time_ns() - begun_ns)
        return done

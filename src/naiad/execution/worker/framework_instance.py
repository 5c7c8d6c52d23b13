"""An instance of a framework's model in a worker: a batch travels as one request, and its results are split here.

To the loaded model it looks like an instance in a thread, and its end like that of a Python model's worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import ClassVar

from naiad.backend_api.backend import WorkerSpec
from naiad.config.backend_view import as_backend_sees
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.ragged import joined_inputs, take_apart
from naiad.execution.batching.response import Response
from naiad.execution.instances.runner import halves, may_split, split
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.gathered import write_gathered
from naiad.execution.worker.codec.writer import frame
from naiad.execution.worker.events import WorkerEventSink
from naiad.execution.worker.instance import FrameHandler, ProcessInstance
from naiad.execution.worker.process import WorkerProcess
from naiad.request import Array
from naiad.tensor.packed_bytes import with_unpacked
from naiad.worker.ipc.arena import Arena
from naiad.worker.ipc.frames import RESPONSES, SKIP


@dataclass(frozen=True, slots=True)
class FrameworkSpec(WorkerSpec):
    """How the worker of a framework's model is started.

    Attributes:
        open: makes a worker that has no load command yet, by the name of the instance and this.
    """

    open: Callable[[str, WorkerSpec], WorkerProcess] = field(kw_only=True)


class FrameworkInstance(ProcessInstance):
    """Runs batches one after another in a framework's process."""

    sends_requests = False
    gathers = True
    runs_ahead = 1

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        worker: FrameworkSpec,
        events: WorkerEventSink[ProcessInstance],
        loop: asyncio.AbstractEventLoop,
        arena: Arena | None = None,
    ) -> None:
        super().__init__(name, spec, worker, events, loop, arena=arena)
        self._framework_spec = worker
        self._written = as_backend_sees(spec)
        # In flight: one batch, or the parts of a batch that failed.
        self._sent: dict[int, Batch] = {}
        # What waits in the worker behind the batch in flight, with its number.
        self._ahead: tuple[int, Batch] | None = None
        self._done_batches: list[Batch] = []

    def _open(self) -> WorkerProcess:
        return self._framework_spec.open(self.name, self._framework_spec)

    # Batches

    def run(self, batch: Batch) -> list[Batch] | None:
        """Send a batch to the worker; ``framework_finished`` is called when it is done.

        Returns the batch at once, with its error, when that is not possible.
        """
        return self._hand_over(batch, self._begin)

    def run_ahead(self, batch: Batch) -> list[Batch] | None:
        return self._hand_over(batch, self._wait_behind)

    def drop(self, batch: Batch) -> bool:
        if self._ahead is None or self._ahead[1] is not batch:
            return False
        # If it has just begun, its responses are of no batch that is known here.
        self._send(frame(SKIP, self._ahead[0]))
        self._ahead = None
        return True

    def _begin(self, number: int, batch: Batch) -> None:
        # Here and not in ``_requests`` alone: parts of a split batch are in flight together.
        self._sent[number] = batch
        self._requests.begin_whole(number, batch)

    def _wait_behind(self, number: int, batch: Batch) -> None:
        self._ahead = number, batch

    def _hand_over(self, batch: Batch, register: Callable[[int, Batch], None]) -> list[Batch] | None:
        batch.start_ns = monotonic_ns()
        number = self._last_number = self._last_number + 1
        frames: list[OutgoingFrame] = []
        try:
            # The worker knows no ragged or padded inputs: it gets the tensors as the model does.
            inputs = joined_inputs(batch, self._spec)
            write_gathered(self._writer, self._written, number, inputs, batch.outputs, frames)
        except Exception as error:
            # The writer counts on the worker knowing the schemas and segments that were announced.
            self._send_all(frames)
            if isinstance(error, NaiadError) and batch.count > 1 and batch.splits:
                return self._run_singly(batch)
            return self._refuse(batch, error)
        register(number, batch)
        self._session.release_ahead(frames)
        self._send_all(frames)
        batch.input_ns = monotonic_ns()
        return None

    def _run_singly(self, batch: Batch) -> list[Batch] | None:
        """Run the requests of a batch that could not be written: a region that cannot be read costs only its own."""
        for single in split(batch):
            self._done_batches += self.run(single) or ()
        if self._sent:
            return None
        done, self._done_batches = self._done_batches, []
        return done

    def _take_responses(self, number: int, payload: bytearray) -> None:
        (response,) = self._reader.read(payload)
        self._take_whole(number, response)

    _handlers: ClassVar[dict[int, FrameHandler]] = {**ProcessInstance._handlers, RESPONSES: _take_responses}

    def _take_whole(self, number: int, response: Response) -> None:
        batch = self._sent.pop(number, None)
        if batch is None:
            return
        batch.infer_ns = batch.end_ns = monotonic_ns()
        if response.outputs is None:
            batch.error = response.error or BackendError(f"model '{self._spec.name}' gave no response")
        elif self._spec.assembly is None:
            batch.results = response.outputs
        else:
            self._take_apart(batch, response.outputs)
        self._done_batches.append(batch)
        if may_split(batch, self._spec):
            # One bad input costs only its own request.
            for part in halves(batch):
                self._done_batches += self.run(part) or ()
        # Parts of a split batch are reported together, when the last of them has run.
        if not self._sent:
            self._end_whole(batch.end_ns)
            done, self._done_batches = self._done_batches, []
            self.events.framework_finished(self, done, True)

    def _end_whole(self, at_ns: int) -> None:
        """Note that the worker is done with a batch, and has begun with the one behind it, if there is one."""
        if self._ahead is None:
            self._requests.end_whole()
            return
        (number, batch), self._ahead = self._ahead, None
        self._begin(number, batch)
        batch.start_ns = batch.input_ns = at_ns

    def _take_apart(self, batch: Batch, outputs: Mapping[str, Array]) -> None:
        try:
            take_apart(batch, with_unpacked(outputs), self._spec)
        except NaiadError as error:
            batch.fail(error)

    # Life and death

    def _forget_next(self) -> None:
        self._ahead = None

    def _fail_open(self, error: NaiadError, late: Batch | None, overtime: NaiadError) -> None:
        super()._fail_open(error, late, overtime)
        self._fail_sent(error)

    def _fail_sent(self, error: NaiadError) -> None:
        now_ns = monotonic_ns()
        for batch in self._sent.values():
            batch.error = error
            batch.end_ns = now_ns
        # Parts that were done waited for these.
        done = [*self._done_batches, *self._sent.values()]
        self._sent = {}
        self._done_batches = []
        if done:
            self.events.framework_finished(self, done, False)

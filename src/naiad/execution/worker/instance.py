"""An instance in a worker process: the loop sends it batches and takes its responses, and a crash stays there.

Everything but ``start``, ``stop`` and ``join`` happens on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, monotonic_ns
from typing import Any, ClassVar, Final

import orjson

from naiad.backend_api.backend import WorkerSpec
from naiad.config.spec import ModelSpec
from naiad.errors import (
    BackendError,
    CancelledError,
    ExecutionTimeoutError,
    InternalError,
    NaiadError,
    UnavailableError,
)
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.response import Response
from naiad.execution.instances.model_instance import ModelInstance
from naiad.execution.model_directory import ModelDirectory
from naiad.execution.worker.channel import WorkerChannel
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.writer import frame
from naiad.execution.worker.control import Content, Reply
from naiad.execution.worker.events import WorkerEventSink
from naiad.execution.worker.frame_sender import FrameSender
from naiad.execution.worker.in_flight import InFlightRequests
from naiad.execution.worker.process import END_S, WorkerProcess
from naiad.execution.worker.readiness import LIMIT_S, WorkerReadiness
from naiad.execution.worker.stdout import WorkerOutput
from naiad.execution.worker.supervisor import RestartBackoff, StartedWorker, WorkerSupervisor
from naiad.execution.worker.watchdog import ExecutionWatchdog
from naiad.execution.worker.worker_session import WorkerSession
from naiad.request import Array, InferRequest, request_label
from naiad.telemetry.metrics.custom import CustomMetrics
from naiad.worker.ipc.arena import Arena
from naiad.worker.ipc.frames import (
    CANCEL,
    DONE,
    FLAG_EMPTY,
    FLAG_ERROR,
    FLAG_FINAL,
    FLAG_RESCHEDULE,
    NUMBERS,
    PAUSE,
    RESPONSE,
    RESPONSES,
    RESPONSES_UNIFORM,
    RESUME,
    SEGMENT_BYTES,
    SKIP,
)

logger = logging.getLogger("naiad")

BEAT_S: Final = 1.0
LONG_S: Final = 60.0
"""A batch that runs for longer is worth a line in the log."""
FrameHandler = Callable[[Any, int, bytearray], object]
"""What takes a kind of frame: a function of the instance, the frame's number and its payload."""


class ProcessInstance(ModelInstance):
    """Runs batches one after another in a worker, which is restarted when it ends.

    Args:
        name: of the instance.
        spec: of the model.
        worker: how the worker is started.
        events: takes the events of the worker.
        loop: the event loop.
        models: the models that it can call.
        metrics: shows the metrics of the model.
        arena: where large inputs of the model may lie.

    Attributes:
        events: takes the events of the worker from now on.
        problem: what is wrong with the worker, "" for nothing.
        is_down: there is no worker, and the pause before the next one is long.
        warm_again: called instead of ``events.worker_ready`` after a restart; it calls that when the worker is warm.
    """

    is_worker = True
    sends_requests = True
    # With few, server and worker wake each other for each request; more gain little (``docs/benchmarks.md``).
    runs_ahead = 7
    regions_from = SEGMENT_BYTES

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        worker: WorkerSpec,
        events: WorkerEventSink[ProcessInstance],
        loop: asyncio.AbstractEventLoop,
        models: ModelDirectory | None = None,
        metrics: CustomMetrics | None = None,
        arena: Arena | None = None,
    ) -> None:
        self.name = name
        self.is_down = False
        self.problem = ""
        self._spec = spec
        self._worker_spec = worker
        self.events = events
        self.warm_again: Callable[[ProcessInstance], object] | None = None
        self._loop = loop
        self._models = models
        self._metrics = metrics or CustomMetrics()
        self._arena = arena
        self._process: WorkerProcess | None = None
        self._sender = FrameSender()
        self._send = self._sender.send
        self._send_all = self._sender.send_all
        self._starting: WorkerProcess | None = None
        self._last_number = 0
        self._requests = InFlightRequests()
        self._supervisor = WorkerSupervisor(name, loop, self._spawn, self._reap, self._restarted)
        self._born_s = 0.0
        self._number_at_birth = 0
        self._timer: asyncio.TimerHandle | None = None
        self._output: WorkerOutput | None = None
        self._overtime = (
            ExecutionWatchdog(loop, worker.execute_s, self._began_ns, self._late) if worker.execute_s else None
        )
        self._reset()

    def _reset(self) -> None:
        """Replace everything that belongs to one worker."""
        self._session = WorkerSession(
            self.name, self._spec, self._sender, self._requests, self._models, self._metrics, self._arena
        )
        # Every batch needs these.
        self._writer, self._reader = self._session.writer, self._session.reader
        # Why this side killed the worker, "" when it did not.
        self._verdict = ""
        self._is_late = False
        # The start of the batch that ``_log_long_batch`` saw last, and after which time it is worth another line.
        self._long_ns, self._long_s = 0, LONG_S

    # Start and end

    def start(self) -> None:
        """Start the worker and wait until its model is loaded, and has been asked once whether it is ready; called in a
        loading thread.

        Raises:
            ModelLoadError: it could not.
        """
        self._process, has_ready_check = self._spawn()
        replied = threading.Event()
        self._loop.call_soon_threadsafe(self._attach, has_ready_check, replied.set)
        if has_ready_check:
            # Who hears that a model is loaded may ask at once whether it is ready. One that hangs is not.
            replied.wait(LIMIT_S)

    def _spawn(self) -> StartedWorker:
        """Start a worker and wait until it is ready."""
        process = self._starting = self._open()
        try:
            # ``stop`` may have come before ``_starting`` was set, and have found nothing to abort.
            if self._supervisor.is_over:
                process.abort()
            _, content = process.begin(self._handle_from_thread)
        except BaseException:
            process.close()
            raise
        finally:
            self._starting = None
        process.connection.setblocking(False)
        return StartedWorker(process, bool(content.get("is_ready")))

    def _open(self) -> WorkerProcess:
        """A worker that has no load command yet."""
        return WorkerProcess(self.name, self._worker_spec)

    def _handle_from_thread(self, content: Content, reply: Reply | None) -> None:
        """Pass on a control request, or a notification, of a worker that is not ready yet."""
        if reply is None:
            self._loop.call_soon_threadsafe(self._session.control.notify, content)
        else:
            self._loop.call_soon_threadsafe(self._session.control.handle, content, reply)

    def _attach(self, has_ready_check: bool, replied: Callable[[], object] = lambda: None) -> None:
        """Listen to a worker that is ready; ``replied`` is called once it says whether its model is, too."""
        process = self._process
        if process is None or self._supervisor.is_over:
            return
        channel = WorkerChannel(self.name, process.connection, self._loop, self._take, self._died)
        channel.on_drained = self._session.calls.drained
        self._sender.channel = channel
        # Replies to what the model asked before it was ready go this way too.
        process.send = channel.send
        self._output = WorkerOutput(process, self._loop)
        self._born_s = monotonic()
        self._number_at_birth = self._last_number
        self.is_down = False
        self.problem = ""
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        self._session.readiness = WorkerReadiness(self.name, has_ready_check, replied)
        self._session.check_ready()

    @property
    def is_up(self) -> bool:
        """Whether there is a worker that can take a batch."""
        return self._sender.channel is not None

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight in the worker."""
        return self._requests.is_empty

    def when_idle(self, callback: Callable[[], object]) -> None:
        self._requests.when_empty(callback)

    @property
    def not_ready(self) -> str:
        """The protocol's text for a model that reports itself as not ready, "" otherwise."""
        return self._session.readiness.problem

    def detach(self) -> None:
        """Close the connection and release everything; the last call on the loop."""
        self._supervisor.stop()
        # First: responses to the calls that are cancelled below have nowhere to go.
        self._unlisten()
        self._session.close()
        if self._process is not None:
            self._process.end()
            self._process.close()
            self._process = None
        # Whoever still refers to this instance should not keep descriptors open.
        self._reset()
        # Both refer to this instance, and what is loaded at the start is kept from the garbage collector.
        self._overtime = None
        self.warm_again = None
        # Also has who waits for the last of them go on.
        self._requests.clear()

    def _unlisten(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sender.channel is not None:
            self._sender.channel.close()
            self._sender.channel = None
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._overtime is not None:
            self._overtime.stop()

    @property
    def back_off(self) -> RestartBackoff:
        """The pauses before restarts of its worker."""
        return self._supervisor.back_off

    @property
    def pid(self) -> int:
        """The number of the process; 0 without one."""
        return 0 if self._process is None else self._process.process.pid

    def stop(self) -> None:
        """Ask the worker to finish and to end; called in a thread, when nothing is in flight."""
        # Set before ``_starting`` is read: ``_spawn`` looks at the two in the other order, so one of them aborts.
        self._supervisor.is_over = True
        if (starting := self._starting) is not None:
            starting.abort()
        # Bound once: the loop may notice the worker's end meanwhile, and set it to None.
        if (process := self._process) is not None:
            process.finalize()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end that ``stop`` asked for; a worker that takes too long is killed. Always True."""
        if (process := self._process) is not None:
            try:
                process.process.wait(END_S if timeout is None else timeout)
            except subprocess.TimeoutExpired:
                # ``finalize()`` of a model may hang.
                process.process.kill()
                process.process.wait()
        self._supervisor.join(timeout)
        return True

    # Batches

    def run(self, batch: Batch) -> list[Batch] | None:
        """Send a batch to the worker, which begins with it behind the one that it runs; its responses come later."""
        batch.start_ns = monotonic_ns()
        number = self._last_number + 1
        # One number for the batch, then one for each request.
        self._last_number += 1 + len(batch.requests)
        frames: list[OutgoingFrame] = []
        try:
            self._writer.write(number, number + 1, batch.requests, frames)
        except Exception as error:
            # The writer counts on the worker knowing the schemas and segments that were announced.
            self._send_all(frames)
            return self._refuse(batch, error)
        self._requests.begin(number, number + 1, batch)
        # Ahead of the batch: the worker can use these segments for its responses.
        self._session.release_ahead(frames)
        for data, descriptor in frames:
            self._send(data, descriptor)
        batch.input_ns = monotonic_ns()
        if self._overtime is not None:
            self._overtime.watch()
        return None

    def _refuse(self, batch: Batch, error: Exception) -> list[Batch]:
        text = f"a batch of model '{self._spec.name}' could not be handed to its process: {error}"
        if isinstance(error, NaiadError):
            batch.fail(error)
        elif isinstance(error, (OSError, MemoryError)):
            batch.error = UnavailableError(text)
        else:
            logger.exception("%s: a batch could not be written", self.name)
            batch.error = InternalError(text)
        batch.input_ns = batch.end_ns = monotonic_ns()
        return [batch]

    def drop(self, batch: Batch) -> bool:
        """Give up a batch that waits in the worker; False when it runs."""
        number = self._requests.drop_next(batch)
        if number:
            # If it has just begun, its responses are of no batch that is known here, and its only request is cancelled.
            self._send(frame(SKIP, number) + frame(CANCEL, number + 1))
        return bool(number)

    def cancel(self, request: InferRequest) -> None:
        """Cancel a request, if it is in flight here."""
        if number := self._requests.give_up(request):
            # Only this frame: the worker decides when the request ends, and its response comes as usual.
            self._send(frame(CANCEL, number))
            self._session.calls.cancel_with(self._requests)

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """Pause a request whose caller does not read, if it is in flight here."""
        if number := self._requests.number_of(request):
            self._send(frame(PAUSE, number, NUMBERS.pack(backpressure_timeout_ms)))

    def resume(self, request: InferRequest) -> None:
        """Resume a paused request."""
        if number := self._requests.number_of(request):
            self._send(frame(RESUME, number))

    # Receiving

    def _take(self, kind: int, number: int, payload: bytearray) -> None:
        # Most frames are of this kind, and skip the look-up in the table.
        if kind == RESPONSES_UNIFORM:
            came_ns = monotonic_ns()
            self._complete_uniform(number, self._reader.read_uniform(payload), came_ns)
        elif (handler := self._handlers.get(kind)) is not None:
            handler(self, number, payload)
        else:
            self._session.take(kind, number, payload)

    def _take_responses(self, number: int, payload: bytearray) -> None:
        came_ns = monotonic_ns()
        responses = self._reader.read(payload, came_ns)
        if self._requests.is_completed_by(number, responses):
            # Each of them has one plain response.
            self._complete_uniform(number, [r.outputs for r in responses if r.outputs is not None], came_ns)
            return
        # The worker gets its next batch before the callers get their responses: that keeps it busy.
        self._finish(number)
        for response in responses:
            self._respond(response)

    def _take_response(self, number: int, payload: bytearray) -> None:
        self._respond(self._reader.read_one(payload, monotonic_ns()))
        self._session.release_segments()

    def _take_done(self, number: int, payload: bytearray) -> None:
        self._done(number, orjson.loads(payload) if payload else {})

    # The session takes the other kinds. A table of the class: one of the instance would refer back to it.
    _handlers: ClassVar[dict[int, FrameHandler]] = {
        RESPONSES: _take_responses,
        RESPONSE: _take_response,
        DONE: _take_done,
    }

    def _complete_uniform(self, number: int, outputs: Sequence[Mapping[str, Array]], came_ns: int) -> None:
        """End the running batch with one response to each request; ``came_ns`` is when they arrived."""
        batch = self._requests.batch
        if batch is None or number != self._requests.number:
            return
        self._requests.complete(len(outputs))
        batch.infer_ns = came_ns
        batch.end_ns = monotonic_ns()
        self._begin_next(came_ns)
        self.events.worker_completed(self, batch, outputs)

    def _respond(self, response: Response) -> None:
        found = self._requests.find(response.request, response.final)
        if found is None:
            return
        request, batch = found
        if response.final and self._requests.was_given_up(response.request):
            if response.flags & FLAG_RESCHEDULE:
                # Rescheduled, it would not hear of the cancellation again, which it may be waiting for.
                error = CancelledError(f"{request_label(request.id)}the request was cancelled by its caller")
                response = Response(response.request, None, error, FLAG_FINAL | FLAG_ERROR)
            elif response.outputs is None and response.error is None:
                # It counts as cancelled, and not as an empty response.
                response = response._replace(is_cancelled=True)
        self.events.worker_responded(request, response, batch)

    def _done(self, number: int, content: Mapping[str, Any]) -> None:
        requests = self._requests
        if requests.batch is not None and number == requests.number and (message := content.get("message")):
            error = BackendError(str(message))
            for held in requests.open_numbers():
                self._respond(Response(held, None, error, FLAG_FINAL | FLAG_ERROR))
        self._finish(number)

    def _finish(self, number: int) -> None:
        batch = self._requests.batch
        if batch is None or number != self._requests.number:
            return
        self._requests.end()
        batch.infer_ns = batch.end_ns = monotonic_ns()
        self._begin_next(batch.end_ns)
        self.events.worker_finished(self, batch)

    def _begin_next(self, at_ns: int) -> None:
        """Note that the worker has begun with the batch that was sent ahead, if there is one."""
        batch = self._requests.batch
        if batch is not None:
            batch.start_ns = batch.input_ns = at_ns
            if self._overtime is not None:
                self._overtime.watch()

    # Life and death

    def _began_ns(self) -> int:
        return self._requests.batch.start_ns if self._requests.batch is not None else 0

    def _late(self) -> None:
        """The batch has run for longer than it may."""
        batch, channel = self._requests.batch, self._sender.channel
        if channel is not None:
            # The server itself may have been stopped for a while, and the responses may be there.
            channel.read()
        process = self._process
        if process is None or batch is None or self._requests.batch is not batch:
            return
        self._is_late = True
        self._end(process, f"a batch ran for longer than {self._worker_spec.execute_s:g} s (execute-timeout-seconds)")

    def _end(self, process: WorkerProcess, verdict: str) -> None:
        """Kill the worker. Its end is then noticed like any other."""
        self._verdict = verdict
        process.process.kill()

    def _beat(self) -> None:
        """Once a second: check that the worker is alive, and have the session do what is due."""
        # First: ``_died``, which may follow below, cancels it.
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        process = self._process
        if process is None or self._has_ended(process):
            return
        # Beats and not seconds: the server itself may have been stopped (SIGSTOP) for a while.
        silence_s = self._worker_spec.silence_s or self._worker_spec.start_s
        if self._session.missed_beats * BEAT_S >= silence_s:
            self._end(process, f"it gave no sign of life for {silence_s:g} s ({self._worker_spec.setting})")
            return
        self._session.beat()
        self._log_long_batch()

    def _log_long_batch(self) -> None:
        """Log a batch that runs for very long, after twice the time again: nothing else shows a model that hangs."""
        batch = self._requests.batch
        if batch is None or not batch.start_ns:
            return
        lasted_s = (monotonic_ns() - batch.start_ns) / 1e9
        if batch.start_ns != self._long_ns:
            self._long_ns, self._long_s = batch.start_ns, LONG_S
        if lasted_s >= self._long_s:
            self._long_s *= 2
            text = "%s has been running a batch for %.0f s now, requests: %d; execute-timeout-seconds would limit that"
            logger.info(text, self.name, lasted_s, len(batch.callers))

    def _has_ended(self, process: WorkerProcess) -> bool:
        """Notice an end that the connection does not show, since a program that the worker started has it open too."""
        if process.process.poll() is None:
            return False
        if (channel := self._sender.channel) is not None:
            # The worker's last responses may still lie in the socket.
            channel.read()
        # ``read`` may have noticed the end itself.
        if self._process is process:
            self._died()
        return True

    def _died(self) -> None:
        """Stop listening to a worker that has ended or will end."""
        process, channel = self._process, self._sender.channel
        self._unlisten()
        if process is None or self._supervisor.is_over:
            return
        if channel is not None:
            self._verdict = self._verdict or channel.problem
        self._process = None
        self.problem = self._verdict or "its connection is closed"
        self._forget_next()
        self.events.worker_died(self)
        # Nearly always it has ended, or does within a moment; otherwise a thread waits for it.
        if process.has_ended():
            self._reap(process, process.exit_reason())
            return
        self._supervisor.end(process)

    def _forget_next(self) -> None:
        """Forget what waits behind the running batch: it never began, and goes back to the queue."""
        self._requests.forget_next()

    def _reap(self, process: WorkerProcess, how: str) -> None:
        """Fail the requests of a worker that has ended, and start another one."""
        process.close()
        self.problem = f"{self._verdict} ({how})" if self._verdict else how
        logger.error("%s has ended: %s", self.name, self.problem)
        self._supervisor.back_off.ended(monotonic() - self._born_s, self._has_worked())
        # Before the requests are cleared below.
        late = self._requests.batch if self._is_late else None
        overtime = ExecutionTimeoutError(f"Stub process '{self.name}' was ended: {self._verdict}")
        session = self._session
        self._reset()
        session.close()
        error = UnavailableError(f"Stub process '{self.name}' is not healthy. It has ended: {self.problem}")
        self._fail_open(error, late, overtime)
        if not self._supervisor.is_over:
            self._restart_later(self._supervisor.back_off.is_long)

    def _fail_open(self, error: NaiadError, late: Batch | None, overtime: NaiadError) -> None:
        """Fail all requests in flight with ``error``; requests of the batch ``late`` with ``overtime``."""
        for request, batch in self._requests.clear():
            response = Response(0, None, overtime if batch is late else error, FLAG_FINAL | FLAG_ERROR | FLAG_EMPTY)
            self.events.worker_responded(request, response, batch)

    def count_work(self) -> None:
        """Count batches from now on as work: the warm-up does not shorten the pauses between restarts."""
        self._number_at_birth = self._last_number

    def _has_worked(self) -> bool:
        """Whether the worker has come to the end of a batch."""
        number, first = self._requests.number, self._number_at_birth + 1
        return number > first or (number == first and self._requests.batch is None)

    def _restart_later(self, is_down: bool) -> None:
        if is_down and not self.is_down:
            self.is_down = True
            self.events.worker_down(self)
        self._supervisor.start_later()

    def _restarted(self, spawned: StartedWorker | None, failure: str) -> None:
        if spawned is None:
            self.problem = failure
            # It may have made metrics before it failed.
            self._session.control.close()
            logger.error("%s: %s", self.name, failure)
            self._restart_later(True)
            return
        self._process = spawned.process
        self._attach(spawned.has_ready_check)
        logger.info("%s runs again", self.name)
        (self.warm_again or self.events.worker_ready)(self)

"""An instance in a process of its own: the loop hands batches over and takes responses in, and a death stays there.

Everything but ``start``, ``stop`` and ``join`` happens on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
from collections import deque
from collections.abc import Mapping
from itertools import count
from time import monotonic, monotonic_ns
from typing import Any, Final, Protocol

import numpy as np
import orjson

from naiad.backends.base import ChildSpec
from naiad.child.protocol import (
    ASK,
    CALL,
    CANCEL,
    CANCEL_CALL,
    DONE,
    DROP_SEGMENT,
    FINALIZE,
    FLAG_EMPTY,
    FLAG_ERROR,
    FLAG_FINAL,
    FORGET_FORMS,
    FORM,
    FRAME,
    IS_READY,
    LOG,
    NUMBERS,
    PING,
    PONG,
    RELEASE,
    RESPONSE,
    RESPONSES,
    SEGMENT,
)
from naiad.child.segments import ServerSegments
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, NaiadError, UnavailableError
from naiad.execution.batch import Batch
from naiad.execution.child_calls import ChildCalls, Models
from naiad.execution.child_codec import BatchWriter, Piece, Response, ResponseReader, frame
from naiad.execution.child_process import ChildProcess, log_line, receive, send
from naiad.execution.child_readiness import ChildReadiness
from naiad.request import Array, InferRequest

logger = logging.getLogger("naiad")

RECEIVE_BYTES: Final = 1 << 18
BEAT_S: Final = 1.0
FIRST_BACK_OFF_S: Final = 0.1
LONGEST_BACK_OFF_S: Final = 30.0
HEALTHY_AFTER_S: Final = 60.0
END_S: Final = 5.0


class Answers(Protocol):
    """Who takes what a child says: the loaded model."""

    def child_responded(self, request: InferRequest, response: Response) -> None:
        """One response, final or not."""

    def child_finished(self, instance: ProcessInstance, batch: Batch) -> None:
        """The batch is over; requests without a final response stay open."""

    def child_died(self, instance: ProcessInstance) -> None:
        """The instance can take no batch for now."""

    def child_revived(self, instance: ProcessInstance) -> None:
        """It can again."""


class ProcessInstance:
    """Runs batches one after another in a child.

    Args:
        name: of the instance.
        spec: of the model.
        child: how the child is started.
        answers: takes what it says.
        loop: the event loop.
        models: those that the model can call.

    Attributes:
        is_healthy: a child is there and answers; ``problem`` says what is wrong otherwise.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        child: ChildSpec,
        answers: Answers,
        loop: asyncio.AbstractEventLoop,
        models: Models | None = None,
    ) -> None:
        self.name = name
        self.is_healthy = False
        self.problem = ""
        self._spec = spec
        self._child_spec = child
        self._answers = answers
        self._loop = loop
        self._models = models
        self._process: ChildProcess | None = None
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._numbers = count(1)
        self._requests: dict[int, InferRequest] = {}
        self._numbers_of: dict[InferRequest, int] = {}
        self._batch: Batch | None = None
        self._batch_number = 0
        self._stopping = False
        self._back_off_s = FIRST_BACK_OFF_S
        self._born_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reset()

    def _reset(self) -> None:
        """Forget all that belonged to one child."""
        self._rest = bytearray()
        self._unsent: deque[tuple[memoryview, int]] = deque()
        self._descriptors: deque[int] = deque()
        self._released: deque[int] = deque()
        self._segments = ServerSegments(self._released.append)
        self._writer = BatchWriter(self._spec)
        self._reader = ResponseReader(self._spec, self._open_segment)
        self._calls = ChildCalls(
            self._models, self._writer, self._open_segment, self._send_all, lambda: len(self._unsent)
        )
        self._readiness = ChildReadiness(self.name, False)
        self._pinged_s = 0.0

    # Start and end

    def start(self) -> None:
        """Start the child and wait until its model is loaded; called in a loading thread.

        Raises:
            ModelLoadError: it could not.
        """
        self._process, is_asked = self._spawn()
        self._loop.call_soon_threadsafe(self._attach, is_asked)

    def _spawn(self) -> tuple[ChildProcess, bool]:
        """A child that is ready, and whether its model has ``is_ready()``."""
        process = ChildProcess(self.name, self._child_spec)
        try:
            _, content = process.begin()
        except BaseException:
            process.close()
            raise
        process.connection.setblocking(False)
        return process, bool(content.get("is_ready"))

    def _attach(self, is_asked: bool) -> None:
        """Listen to a child that is ready."""
        process = self._process
        if process is None or self._stopping:
            return
        self._loop.add_reader(process.connection.fileno(), self._readable)
        self._loop.add_reader(process.output, self._printed)
        self._born_s = monotonic()
        self.is_healthy = True
        self.problem = ""
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        self._readiness = ChildReadiness(self.name, is_asked)
        self._check_ready()

    def _check_ready(self) -> None:
        if question := self._readiness.beat(monotonic()):
            self._send(question)

    @property
    def not_ready(self) -> str:
        """What the protocol says when the model says that it is not ready, "" otherwise."""
        return self._readiness.problem

    def detach(self) -> None:
        """Stop listening and give back what is left; the last call on the loop."""
        self._stopping = True
        self._unlisten()
        self._calls.close()
        if self._process is not None:
            self._process.end()
            self._process.close()
            self._process = None

    def _unlisten(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        process = self._process
        if process is not None and process.output >= 0:
            if process.connection.fileno() >= 0:
                self._loop.remove_reader(process.connection.fileno())
                self._loop.remove_writer(process.connection.fileno())
            self._loop.remove_reader(process.output)

    def stop(self) -> None:
        """Ask the child to finish and to end; called in a thread, when nothing is in flight."""
        self._stopping = True
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.connection.setblocking(True)
                self._process.connection.settimeout(END_S)
                self._process.connection.sendall(frame(FINALIZE))

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end that ``stop`` asked for; a child that takes too long is killed. Always True."""
        if self._process is not None:
            try:
                self._process.process.wait(END_S if timeout is None else timeout)
            except subprocess.TimeoutExpired:
                self._process.process.kill()
                self._process.process.wait()
        return True

    # Batches

    def run(self, batch: Batch) -> list[Batch] | None:
        """Hand a batch over; its responses come later."""
        batch.start_ns = monotonic_ns()
        self._batch = batch
        self._batch_number = next(self._numbers)
        numbered = {next(self._numbers): request for request in batch.requests}
        pieces: list[Piece] = []
        try:
            self._writer.write(self._batch_number, numbered, pieces)
        except (NaiadError, OSError, MemoryError) as error:
            # What was said about forms and segments holds.
            self._send_all(pieces)
            return self._refuse(batch, error)
        self._requests.update(numbered)
        for number, request in numbered.items():
            self._numbers_of[request] = number
        self._give_back_segments()
        self._send_all(pieces)
        batch.input_ns = monotonic_ns()
        return None

    def _refuse(self, batch: Batch, error: Exception) -> list[Batch]:
        self._batch = None
        text = f"a batch of model '{self._spec.name}' could not be handed to its process: {error}"
        batch.error = error if isinstance(error, NaiadError) else UnavailableError(text)
        batch.input_ns = batch.end_ns = monotonic_ns()
        return [batch]

    def cancel(self, request: InferRequest) -> None:
        """Tell the model that the caller of a request gave up."""
        number = self._numbers_of.get(request)
        if number is not None:
            self._send(frame(CANCEL, number))

    # Sending

    def _send_all(self, pieces: list[Piece]) -> None:
        for data, descriptor in pieces:
            self._send(data, descriptor)

    def _send(self, data: bytes, descriptor: int = -1) -> None:
        view = memoryview(data)
        if not self._unsent:
            view, descriptor = self._send_now(view, descriptor)
        if len(view):
            self._unsent.append((view, descriptor))
            if len(self._unsent) == 1 and self._process is not None:
                self._loop.add_writer(self._process.connection.fileno(), self._writable)

    def _send_now(self, view: memoryview, descriptor: int) -> tuple[memoryview, int]:
        """Send what fits; gives back what is left. A dead child is noticed by its reader."""
        if self._process is None:
            return view[:0], -1
        try:
            while len(view):
                view = view[send(self._process.connection, view, descriptor) :]
                if descriptor >= 0:
                    os.close(descriptor)
                    descriptor = -1
        except BlockingIOError:
            return view, descriptor
        except OSError:
            if descriptor >= 0:
                os.close(descriptor)
            return view[:0], -1
        return view, descriptor

    def _writable(self) -> None:
        while self._unsent:
            view, descriptor = self._send_now(*self._unsent[0])
            if len(view):
                self._unsent[0] = (view, descriptor)
                return
            self._unsent.popleft()
        if self._process is not None and self._process.connection.fileno() >= 0:
            self._loop.remove_writer(self._process.connection.fileno())

    def _give_back_segments(self) -> None:
        released = []
        # The last view of a segment may die in any thread.
        while self._released:
            released.append(NUMBERS.pack(self._released.popleft()))
        if released:
            self._send(frame(RELEASE, 0, b"".join(released)))

    # Receiving

    def _readable(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            size = receive(process.connection, self._view, self._descriptors)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._died()
            return
        rest = self._rest
        rest += self._view[:size]
        at = 0
        while len(rest) - at >= FRAME.size:
            kind, length, number = FRAME.unpack_from(rest, at)
            end = at + FRAME.size + length
            if end > len(rest):
                break
            try:
                # A copy of its own: outputs are views of it.
                self._take(kind, number, rest[at + FRAME.size : end])
            except Exception:
                # Nothing that comes after it can be trusted.
                logger.exception("%s sent what cannot be read: it is killed", self.name)
                process.process.kill()
                self._died()
                return
            at = end
        self._rest = rest[at:]

    def _take(self, kind: int, number: int, payload: bytearray) -> None:
        if kind == RESPONSES:
            for response in self._reader.read(payload):
                self._respond(response)
            self._finish(number)
        elif kind == RESPONSE:
            self._respond(self._reader.read_one(payload))
        elif kind == DONE:
            self._done(number, orjson.loads(bytes(payload)) if payload else {})
        elif kind == FORM:
            raw = bytes(payload)
            if not self._calls.learn(number, raw):
                self._reader.learn(number, raw)
        elif kind == FORGET_FORMS:
            self._reader.forget()
            self._calls.forget()
        elif kind == SEGMENT:
            self._segments.add(number, self._descriptors.popleft(), int.from_bytes(payload, "little"))
        elif kind == DROP_SEGMENT:
            self._segments.drop(number)
        elif kind == RELEASE:
            self._writer.pool.give_back([n for (n,) in NUMBERS.iter_unpack(payload)])
        elif kind == LOG:
            log_line(self.name, orjson.loads(bytes(payload)))
        elif kind == PONG:
            self._pinged_s = 0.0
        elif kind == IS_READY:
            self._readiness.take(orjson.loads(bytes(payload)))
        elif kind == ASK:
            self._calls.answer(number, orjson.loads(bytes(payload)))
        elif kind == CALL:
            self._calls.call(number, payload)
            # Tensors of earlier calls may hold back the child, which waits for its segments.
            self._give_back_segments()
        elif kind == CANCEL_CALL:
            self._calls.cancel(number)

    def _open_segment(self, number: int, offset: int, size: int) -> Array:
        found: Array = np.asarray(self._segments.open(number, offset, size))
        return found

    def _respond(self, response: Response) -> None:
        request = self._requests.get(response.request)
        if request is None:
            return
        if response.final:
            del self._requests[response.request]
            self._numbers_of.pop(request, None)
        self._answers.child_responded(request, response)

    def _done(self, number: int, content: Mapping[str, Any]) -> None:
        batch = self._batch
        if batch is not None and number == self._batch_number and (message := content.get("message")):
            error = BackendError(str(message))
            for request in batch.requests:
                if (held := self._numbers_of.get(request)) is not None:
                    self._respond(Response(held, None, error, FLAG_FINAL | FLAG_ERROR))
        self._finish(number)

    def _finish(self, number: int) -> None:
        batch = self._batch
        if batch is None or number != self._batch_number:
            return
        self._batch = None
        batch.infer_ns = batch.end_ns = monotonic_ns()
        self._answers.child_finished(self, batch)

    # Life and death

    def _printed(self) -> None:
        process = self._process
        if process is None:
            return
        for line in process.read_output():
            logger.info("%s: %s", self.name, line)
        if process.process.poll() is not None:
            self._loop.remove_reader(process.output)

    def _beat(self) -> None:
        """Once a second: is the child still alive, and does it keep memory that nobody needs?"""
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        now = monotonic()
        if self._pinged_s and now - self._pinged_s > self._child_spec.start_s:
            logger.error("%s does not answer for %.0f s: it is killed", self.name, now - self._pinged_s)
            if self._process is not None:
                self._process.process.kill()
            return
        if not self._pinged_s:
            self._pinged_s = now
            self._send(frame(PING, 1))
        self._check_ready()
        self._give_back_segments()
        for number in self._writer.pool.trim():
            self._send(frame(DROP_SEGMENT, number))

    def _died(self) -> None:
        """The child is gone: its requests fail, and another one is started."""
        process = self._process
        self._unlisten()
        if process is None or self._stopping:
            return
        self._process = None
        self.is_healthy = False
        self.problem = process.obituary()
        process.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        logger.error("%s has ended: %s", self.name, self.problem)
        error = UnavailableError(f"Stub process '{self.name}' is not healthy. It has ended: {self.problem}")
        self._batch = None
        requests = list(self._requests.values())
        self._requests.clear()
        self._numbers_of.clear()
        calls = self._calls
        self._reset()
        calls.close()
        self._answers.child_died(self)
        for request in requests:
            self._answers.child_responded(request, Response(0, None, error, FLAG_FINAL | FLAG_ERROR | FLAG_EMPTY))
        if monotonic() - self._born_s > HEALTHY_AFTER_S:
            self._back_off_s = FIRST_BACK_OFF_S
        self._revive_later()

    def _revive_later(self) -> None:
        self._timer = self._loop.call_later(self._back_off_s, self._revive)
        self._back_off_s = min(2 * self._back_off_s, LONGEST_BACK_OFF_S)

    def _revive(self) -> None:
        if not self._stopping:
            self._loop.run_in_executor(None, self._spawn).add_done_callback(self._revived)

    def _revived(self, future: asyncio.Future[tuple[ChildProcess, bool]]) -> None:
        if future.cancelled():
            return
        failure = future.exception()
        if failure is not None:
            self.problem = str(failure)
            logger.error("%s could not be started again: %s", self.name, failure)
            if not self._stopping:
                self._revive_later()
            return
        process, is_asked = future.result()
        if self._stopping:
            process.end()
            process.close()
            return
        self._process = process
        self._attach(is_asked)
        self._answers.child_revived(self)

"""An instance in a process of its own: the loop hands batches over and takes responses in, and a death stays there.

Everything but ``start``, ``stop`` and ``join`` happens on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from functools import partial
from itertools import count
from time import monotonic, monotonic_ns
from typing import Any, Final, Protocol

import numpy as np
import orjson

from naiad.backends.base import ChildSpec
from naiad.child.protocol import (
    ANSWER,
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
    IS_READY,
    LOG,
    NUMBERS,
    PING,
    PONG,
    RELEASE,
    RESPONSE,
    RESPONSES,
    SEGMENT,
    TELL,
)
from naiad.child.segments import ServerSegments
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, InternalError, NaiadError, UnavailableError
from naiad.execution.batch import Batch
from naiad.execution.child_asks import ChildAsks, Content, Reply
from naiad.execution.child_calls import ChildCalls, Models
from naiad.execution.child_channel import ChildChannel
from naiad.execution.child_codec import BatchWriter, Piece, Response, ResponseReader, frame
from naiad.execution.child_metrics import ChildMetrics
from naiad.execution.child_models import ModelQuestions
from naiad.execution.child_process import ChildProcess, log_line
from naiad.execution.child_readiness import ChildReadiness
from naiad.request import Array, InferRequest

logger = logging.getLogger("naiad")

BEAT_S: Final = 1.0
FIRST_BACK_OFF_S: Final = 0.1
LONGEST_BACK_OFF_S: Final = 30.0
# Requests wait for a child that will be there after so long, not for one that takes longer.
PATIENCE_S: Final = 4.0
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

    def child_down(self, instance: ProcessInstance) -> None:
        """It will take a while until it can again."""

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
        problem: what is wrong with the child, "" for nothing.
        is_down: no child is there, and it will take a while until there is one.
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
        self.is_down = False
        self.problem = ""
        self._spec = spec
        self._child_spec = child
        self._answers = answers
        self._loop = loop
        self._models = models
        self._process: ChildProcess | None = None
        self._channel: ChildChannel | None = None
        self._starting: ChildProcess | None = None
        self._starter: threading.Thread | None = None
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
        self._released: deque[int] = deque()
        self._segments = ServerSegments(self._released.append)
        self._writer = BatchWriter(self._spec)
        self._reader = ResponseReader(self._spec, self._open_segment)
        self._calls = ChildCalls(self._models, self._writer, self._open_segment, self._send_all, self._waiting)
        self._asks = ChildAsks(ModelQuestions(self._models), ChildMetrics())
        self._readiness = ChildReadiness(self.name, False)
        self._missed_beats = 0
        self._was_killed = False

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
        process = self._starting = ChildProcess(self.name, self._child_spec)
        try:
            if self._stopping:
                process.process.kill()
            _, content = process.begin(self._ask_from_thread)
        except BaseException:
            process.close()
            raise
        finally:
            self._starting = None
        process.connection.setblocking(False)
        return process, bool(content.get("is_ready"))

    def _ask_from_thread(self, content: Content, reply: Reply | None) -> None:
        """Pass on what a child asks, or tells, that is not ready yet."""
        if reply is None:
            self._loop.call_soon_threadsafe(self._asks.tell, content)
        else:
            self._loop.call_soon_threadsafe(self._asks.ask, content, reply)

    def _attach(self, is_asked: bool) -> None:
        """Listen to a child that is ready."""
        process = self._process
        if process is None or self._stopping:
            return
        self._channel = ChildChannel(self.name, process.connection, self._loop, self._take, self._died)
        if not process.is_silent:
            self._loop.add_reader(process.output, self._printed)
        self._born_s = monotonic()
        self.is_down = False
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
        self._asks.close()
        if self._process is not None:
            self._process.end()
            self._process.close()
            self._process = None
        # Segments have descriptors, which would stay open until these circles of objects are collected.
        self._reset()

    def _unlisten(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._loop.remove_reader(self._process.output)

    def stop(self) -> None:
        """Ask the child to finish and to end; called in a thread, when nothing is in flight."""
        self._stopping = True
        if (starting := self._starting) is not None:
            starting.process.kill()
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
        if self._starter is not None:
            self._starter.join(timeout)
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
        except Exception as error:
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
        if isinstance(error, NaiadError):
            batch.error = error
        elif isinstance(error, (OSError, MemoryError)):
            batch.error = UnavailableError(text)
        else:
            logger.exception("%s: a batch could not be written", self.name)
            batch.error = InternalError(text)
        batch.input_ns = batch.end_ns = monotonic_ns()
        return [batch]

    def cancel(self, request: InferRequest) -> None:
        """Tell the model that the caller of a request gave up."""
        number = self._numbers_of.get(request)
        if number is not None:
            self._send(frame(CANCEL, number))

    def _send(self, data: bytes, descriptor: int = -1) -> None:
        if self._channel is not None:
            self._channel.send(data, descriptor)
        elif descriptor >= 0:
            os.close(descriptor)

    def _send_all(self, pieces: list[Piece]) -> None:
        for data, descriptor in pieces:
            self._send(data, descriptor)

    def _waiting(self) -> int:
        return self._channel.waiting if self._channel is not None else 0

    def _give_back_segments(self) -> None:
        released = []
        # The last view of a segment may die in any thread.
        while self._released:
            released.append(NUMBERS.pack(self._released.popleft()))
        if released:
            self._send(frame(RELEASE, 0, b"".join(released)))

    # Receiving

    def _take(self, kind: int, number: int, payload: bytearray) -> None:
        if kind == RESPONSES:
            responses = self._reader.read(payload)
            # The child gets its next batch before the callers get their answers.
            self._finish(number)
            for response in responses:
                self._respond(response)
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
            self._add_segment(number, int.from_bytes(payload, "little"))
        elif kind == DROP_SEGMENT:
            self._segments.drop(number)
        elif kind == RELEASE:
            self._writer.pool.give_back([n for (n,) in NUMBERS.iter_unpack(payload)])
        elif kind == LOG:
            log_line(self.name, orjson.loads(bytes(payload)))
        elif kind == PONG:
            self._missed_beats = 0
        elif kind == IS_READY:
            self._readiness.take(orjson.loads(bytes(payload)))
        elif kind == ASK:
            self._asks.ask(orjson.loads(bytes(payload)), partial(self._answer, self._channel, number))
        elif kind == TELL:
            self._asks.tell(orjson.loads(bytes(payload)))
        elif kind == CALL:
            self._calls.call(number, payload)
            # Tensors of earlier calls may hold back the child, which waits for its segments.
            self._give_back_segments()
        elif kind == CANCEL_CALL:
            self._calls.cancel(number)

    def _answer(self, channel: ChildChannel | None, number: int, content: Content) -> None:
        # The answer may come when the child that asked is gone and another has its place.
        if channel is not None and channel is self._channel:
            channel.send(frame(ANSWER, number, orjson.dumps(content)))

    def _add_segment(self, number: int, size: int) -> None:
        if self._channel is not None:
            self._segments.add(number, self._channel.take_descriptor(), size)

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
        if process is not None:
            process.take_output()
            if process.is_silent:
                self._loop.remove_reader(process.output)

    def _beat(self) -> None:
        """Once a second: is the child still alive, does it say that it is ready, and is there memory to let go?"""
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        process = self._process
        if process is None or self._has_ended(process):
            return
        # Beats and not seconds: the server itself may have been stopped for a while.
        if self._missed_beats * BEAT_S >= self._child_spec.start_s:
            self._was_killed = True
            process.process.kill()
            return
        if not self._missed_beats:
            self._send(frame(PING, 1))
        self._missed_beats += 1
        self._check_ready()
        self._give_back_segments()
        for number in self._writer.pool.trim():
            self._send(frame(DROP_SEGMENT, number))

    def _has_ended(self, process: ChildProcess) -> bool:
        """Notice an end that the connection does not show, as a program that the child started holds it too."""
        if process.process.poll() is None:
            return False
        if self._channel is not None:
            self._channel.read()
        if self._process is process:
            self._died()
        return True

    def _died(self) -> None:
        """The child is gone: its requests fail, and another one is started."""
        process = self._process
        self._unlisten()
        if process is None or self._stopping:
            return
        self._process = None
        self.problem = self._cause(process)
        process.close()
        logger.error("%s has ended: %s", self.name, self.problem)
        error = UnavailableError(f"Stub process '{self.name}' is not healthy. It has ended: {self.problem}")
        self._batch = None
        requests = list(self._requests.values())
        self._requests.clear()
        self._numbers_of.clear()
        calls, asks = self._calls, self._asks
        self._reset()
        calls.close()
        asks.close()
        if monotonic() - self._born_s > HEALTHY_AFTER_S:
            self._back_off_s = FIRST_BACK_OFF_S
        self._answers.child_died(self)
        for request in requests:
            self._answers.child_responded(request, Response(0, None, error, FLAG_FINAL | FLAG_ERROR | FLAG_EMPTY))
        self._revive_later(self._back_off_s > PATIENCE_S)

    def _cause(self, process: ChildProcess) -> str:
        how = process.obituary()
        if not self._was_killed:
            return how
        return f"it gave no sign of life for {self._child_spec.start_s:g} s ({how})"

    def _revive_later(self, is_down: bool) -> None:
        if is_down and not self.is_down:
            self.is_down = True
            self._answers.child_down(self)
        self._timer = self._loop.call_later(self._back_off_s, self._revive)
        self._back_off_s = min(2 * self._back_off_s, LONGEST_BACK_OFF_S)

    def _revive(self) -> None:
        """Start a child in a thread of its own: it may take long, and several may be needed at a time."""
        self._timer = None
        self._starter = threading.Thread(target=self._start_again, name=f"naiad-start-{self.name}", daemon=True)
        self._starter.start()

    def _start_again(self) -> None:
        started: tuple[ChildProcess, bool] | None = None
        failure = ""
        try:
            started = self._spawn()
        except Exception as error:
            failure = f"it cannot be started again: {error}"
        try:
            self._loop.call_soon_threadsafe(self._revived, started, failure)
        except RuntimeError:
            # The loop is closed, and with it the server.
            _give_up(started)

    def _revived(self, started: tuple[ChildProcess, bool] | None, failure: str) -> None:
        self._starter = None
        if self._stopping:
            _give_up(started)
            return
        if started is None:
            self.problem = failure
            # It may have made metrics before it failed.
            self._asks.close()
            logger.error("%s: %s", self.name, failure)
            self._revive_later(True)
            return
        self._process, is_asked = started
        self._attach(is_asked)
        logger.info("%s runs again", self.name)
        self._answers.child_revived(self)


def _give_up(started: tuple[ChildProcess, bool] | None) -> None:
    """End a child that came too late."""
    if started is not None:
        process, _ = started
        process.end()
        process.close()

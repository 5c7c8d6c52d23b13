"""Large JSON is read and written in worker processes: a parser holds the interpreter, and with it the event loop, while
it runs.

A thread sends the work and receives the result, both without holding the interpreter. Worker and thread start with the
first job and end after a minute without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from naiad.config.spec import TensorSpec
from naiad.errors import InternalError, NaiadError, QueueFullError, UnavailableError, error_of_name
from naiad.eventloop.sliced_work import SlicedWork
from naiad.frontends.http.json_worker import program as json_child
from naiad.frontends.http.json_worker.program import (
    DONE,
    FRAME,
    GENERATE,
    READ,
    READ_JSON_ALONE,
    WRITE,
    WRITE_FLAT,
    receive,
    send,
)
from naiad.processes.process_group import GroupedProcess
from naiad.request import Array, Parameters
from naiad.scheduling.admission import RequestBudget
from naiad.tensor.bytes_codec import Raw
from naiad.tensor.dtypes import DataType
from naiad.wire.v2.generate_packed import pack_inputs
from naiad.wire.v2.response import OutputPart, tensor_bytes

logger = logging.getLogger("naiad")

LARGE_JSON_BYTES: Final = 1 << 19
"""From this size on the JSON of a request goes to a worker."""
MANY_VALUES_BYTES: Final = 1 << 16
MANY_VALUES: Final = 1 << 15
"""With so many values smaller JSON does too: small lists take a parser a hundred times as long per byte."""
MANY_STRINGS: Final = 1 << 13
"""The same for strings, which take several times as long as numbers."""
MANY_TO_GENERATE: Final = 1 << 13
"""The same for ``generate``, which parses some requests twice, and whose requests rarely have many values."""
LARGE_OUTPUT_BYTES: Final = 1 << 17
"""From this size on outputs do; as text each number takes several times its bytes."""
TURN_JSON_BYTES: Final = 1 << 16
"""From this size on JSON that no worker reads takes turns on the loop: it takes from half a millisecond to four."""
TURN_OUTPUT_BYTES: Final = 1 << 15
"""From this size on outputs do that no worker writes."""
MAX_WAITING: Final = 256
"""Bodies and responses that may wait before further bodies are refused. Responses are not: their inference is done."""
_STRING_WEIGHT: Final = 4
_BASE64_SHARE: Final = 4
WORKERS: Final = 2
IDLE_S: Final = 60.0

Body = bytes | bytearray | memoryview
Done = Callable[[memoryview, int, NaiadError | None], None]
"""Called on the event loop with the result and the bytes of its first part, or with an error."""


@dataclass(frozen=True, slots=True)
class _Job:
    kind: int
    held_bytes: int
    first_bytes: Callable[[], tuple[int, list[Raw]]]
    done: Done


def is_large_json(raw: Body, many_values: int = MANY_VALUES) -> bool:
    """Whether a worker should read the JSON; ``many_values`` is the number that is too many for the loop."""
    if len(raw) < MANY_VALUES_BYTES:
        return False
    if len(raw) >= LARGE_JSON_BYTES:
        return True
    plain = _plain(raw)
    # Counting commas costs far less than parsing; each value but the first of a list has one.
    commas = plain.count(b",")
    if commas >= MANY_STRINGS and b'"BYTES"' in plain:
        many_values = min(many_values, MANY_STRINGS)
    return commas >= many_values


def weight_in_json(array: Array, dtype: DataType, is_base64: bool = False) -> int:
    """The weight of an output that is written as JSON: strings take several times as long as numbers, base64 a part of
    that.
    """
    if is_base64:
        return array.nbytes // _BASE64_SHARE
    return array.nbytes if dtype.itemsize else _STRING_WEIGHT * array.nbytes


def _plain(raw: Body) -> bytes | bytearray:
    return bytes(raw) if isinstance(raw, memoryview) else raw


class JsonWork:
    """Reads and writes large JSON for one listener. Used on the event loop, except by its threads.

    ``budget`` bounds the bodies that wait, ``sliced_work`` is that of the loop.
    """

    def __init__(self, budget: RequestBudget, sliced_work: SlicedWork) -> None:
        self._budget = budget
        self._sliced_work = sliced_work
        # The threads use this and ``_is_closed``; the rest belongs to the loop.
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._open = 0
        self._threads: set[threading.Thread] = set()
        self._is_closed = False

    def read(self, body: Body, header_length: int | None, done: Done) -> None:
        """Turn the body of an inference request into one with binary data alone.

        ``done`` gets the new body and the bytes of its JSON part. Errors are those of reading such a request, or
        ``QueueFullError`` when too many wait.
        """
        kind = READ_JSON_ALONE if header_length is None else READ
        size = len(body) if header_length is None else header_length
        self._begin(_Job(kind, len(body), lambda: (size, [memoryview(body)]), done))

    def read_generate(self, body: Body, inputs: Mapping[str, TensorSpec], done: Done) -> None:
        """Turn the body of a request to generate, to a model with these ``inputs``, into a packed one.

        Errors are those of reading such a request, or ``QueueFullError`` when too many wait.
        """
        known = pack_inputs(inputs)
        self._begin(_Job(GENERATE, len(body), lambda: (len(known), [known, memoryview(body)]), done))

    def in_turn(self, held_bytes: int, work: Callable[[], object]) -> None:
        """Have the loop read or write JSON itself: at once, or in a later turn when it did so in this one already.

        Args:
            held_bytes: what it holds until then, in bytes.
            work: handles its own errors, since it may have no caller.
        """
        self._budget.take(held_bytes)

        def steps() -> Iterator[None]:
            self._budget.release(held_bytes)
            work()
            yield

        self._sliced_work.run(steps())

    def write(
        self, model: str, version: int, request_id: str, parts: Sequence[OutputPart], parameters: Parameters, done: Done
    ) -> None:
        """Write the JSON part of a response; arguments and errors as ``encode_response``."""
        self._write(WRITE, model, version, request_id, parts, parameters, done)

    def write_flat(
        self, model: str, version: int, request_id: str, parts: Sequence[OutputPart], parameters: Parameters, done: Done
    ) -> None:
        """Write a response to ``generate``; errors as ``encode_generated``."""
        self._write(WRITE_FLAT, model, version, request_id, parts, parameters, done)

    def _write(
        self,
        kind: int,
        model: str,
        version: int,
        request_id: str,
        parts: Sequence[OutputPart],
        parameters: Parameters,
        done: Done,
    ) -> None:
        def content() -> tuple[int, list[Raw]]:
            # Runs in the thread: making the bytes of the outputs may copy.
            data = [b"" if part.placed else tensor_bytes(part.array, part.dtype) for part in parts]
            outputs = [
                (p.name, p.dtype.wire, p.array.shape, p.binary, p.placed, p.base64, len(raw))
                for p, raw in zip(parts, data, strict=True)
            ]
            told = {"model": model, "version": version, "id": request_id, "parameters": dict(parameters)}
            # orjson refuses some parameters and writes NaN as null. The worker finds what is wrong with them.
            described = json.dumps({**told, "outputs": outputs}).encode()
            return len(described), [described, *data]

        self._begin(_Job(kind, sum(part.array.nbytes for part in parts), content, done))

    def close(self) -> None:
        """End the threads and workers after the jobs that they are doing; waiting jobs are dropped."""
        self._is_closed = True
        # One for each thread, since each takes one and ends.
        for _ in self._threads:
            self._jobs.put(None)

    def _begin(self, job: _Job) -> None:
        try:
            self._take(job)
        except QueueFullError as error:
            job.done(memoryview(b""), 0, error)
            return
        self._jobs.put(job)
        if len(self._threads) < min(self._open, WORKERS):
            loop = asyncio.get_running_loop()
            thread = threading.Thread(target=self._run, args=(loop,), name="naiad-json", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _take(self, job: _Job) -> None:
        is_answer = job.kind in (WRITE, WRITE_FLAT)
        if self._is_closed or (self._open >= MAX_WAITING and not is_answer):
            text = f"{self._open} requests or answers with large JSON are under way: send binary data, or try later"
            raise self._budget.refuse("json", text)
        if not is_answer:
            self._budget.check(job.held_bytes)
        self._budget.take(job.held_bytes)
        self._open += 1

    def _finished(self, job: _Job, content: memoryview, first_bytes: int, error: NaiadError | None) -> None:
        self._open -= 1
        # Before the callback, which may submit the request and count its bytes anew.
        self._budget.release(job.held_bytes)
        job.done(content, first_bytes, error)

    def _left(self, thread: threading.Thread) -> None:
        self._threads.discard(thread)
        if self._open and not self._threads and not self._is_closed:
            # A job came after the last thread had stopped waiting for one, and before the loop knew.
            thread = threading.Thread(target=self._run, args=(asyncio.get_running_loop(),), daemon=True)
            self._threads.add(thread)
            thread.start()

    # In a thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        process: _JsonProcess | None = None
        try:
            while (job := self._next()) is not None and not self._is_closed:
                content, first_bytes, error = memoryview(b""), 0, None
                try:
                    if process is not None and not process.is_running:
                        # It died while no job needed it; no request has to fail for that.
                        process.close()
                        process = None
                    process = process or _JsonProcess()
                    content, first_bytes = process.do(job)
                except NaiadError as wrong:
                    error = wrong
                except OSError as gone:
                    logger.error("the process for large JSON has ended: %s", gone)
                    error = UnavailableError("the process for large JSON has ended; try again")
                    if process is not None:
                        process.close()
                    process = None
                except Exception:
                    logger.exception("large JSON could not be handled")
                    error = InternalError("large JSON could not be handled, see the server's log")
                with contextlib.suppress(RuntimeError):
                    # The loop may be closed by now.
                    loop.call_soon_threadsafe(self._finished, job, content, first_bytes, error)
                # The wait for the next job may take a minute: it must not keep the body and the result alive.
                del job, content
        finally:
            if process is not None:
                process.close()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._left, threading.current_thread())

    def _next(self) -> _Job | None:
        try:
            return self._jobs.get(timeout=IDLE_S)
        except queue.Empty:
            return None


class _JsonProcess:
    """The handle of one worker, used by one thread.

    Raises:
        OSError: the worker cannot be started.
    """

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair()
        # Closed here once the worker has its copy: otherwise the death of the worker would not end ``receive``.
        with theirs:
            self._process = GroupedProcess(
                [sys.executable, "-m", json_child.__name__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    @property
    def is_running(self) -> bool:
        """Whether the worker has not ended."""
        return self._process.poll() is None

    def do(self, job: _Job) -> tuple[memoryview, int]:
        """The result of a job, and the size of its first part in bytes.

        Raises:
            NaiadError: the job fails.
            OSError: the worker is gone.
        """
        first_bytes, parts = job.first_bytes()
        send(self._connection, job.kind, first_bytes, parts)
        kind, first_bytes, size = FRAME.unpack(receive(self._connection, FRAME.size))
        content = receive(self._connection, size)
        if kind != DONE:
            told = orjson.loads(content)
            raise error_of_name(told["error"], told["message"])
        return content, first_bytes

    def close(self) -> None:
        """End the worker."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

"""A worker process from its start to its end. It is started without forking the server's threads, is connected by a
pair of sockets, and is ended by the part that started it."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

import orjson

from naiad import worker
from naiad.backend_api.backend import WorkerSpec
from naiad.errors import ModelLoadError, NaiadError, error_of_name
from naiad.execution.worker.codec.writer import frame
from naiad.processes.process_group import GroupedProcess
from naiad.request import UNKNOWN_ID
from naiad.telemetry.logs.json_lines import MODEL, REQUEST_ID, REQUEST_IDS
from naiad.worker.ipc.frames import (
    CONFIG,
    CONTROL_REQUEST,
    FAILED,
    FINALIZE,
    FRAME,
    INIT,
    LOG,
    NOTIFICATION,
    READY,
    REPLY,
)

logger = logging.getLogger("naiad")

ControlHandler = Callable[[Mapping[str, Any], Callable[[Mapping[str, Any]], None] | None], None]
"""Passes a control request on, with a callback for its reply; None for a notification, which has no reply."""
_LEVELS: Final = {"ERROR": logging.ERROR, "WARNING": logging.WARNING, "VERBOSE": logging.DEBUG}
_said: set[str] = set()
_MOST_SAID: Final = 100
MAIN: Final = Path(worker.__file__).with_name("main.py")
MAX_LINES: Final = 20
MAX_IDS: Final = 16
"""The most ids of requests that a line of a model names."""
END_S: Final = 5.0
FULL_TRACEBACK: Final = "naiad_full_traceback"
"""An attribute of log records with the whole traceback of an error that is also logged in short."""
_LOOK_S: Final = 1.0
_DYING_S: Final = 0.05
# How long the loop waits: a process ends hardly later than its connection.
_MOMENT_S: Final = 0.002
# How much is read and logged in one go, so that the loop is not busy with it for long.
_OUTPUT_BYTES: Final = 1 << 13
_MOST_RECORDS: Final = 100
_LONGEST_LINE: Final = 1 << 16
# Reads of a dead worker's output. A program that it started may go on printing for ever.
_LAST_READS: Final = 512


class Running(Protocol):
    """The part of ``subprocess.Popen`` that is used here."""

    @property
    def pid(self) -> int:
        """The number of the process."""

    @property
    def returncode(self) -> Any:
        """The exit code as far as it is known, None while it runs."""

    def poll(self) -> int | None:
        """The exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""

    def kill(self) -> None:
        """End it at once."""


class WorkerTimeoutError(ModelLoadError):
    """A worker was not ready in time."""


class WorkerProcess:
    """One running worker. ``connection`` and ``output`` (its standard output) are read by others.

    Attributes:
        lines: the last lines that it printed.
        send: sends a frame, on the event loop; set by whoever else writes to the connection.
        is_silent: it has closed its output for good.
        was_ended: the server had to kill it.

    Raises:
        ModelLoadError: it could not be started.
    """

    def __init__(self, name: str, spec: WorkerSpec) -> None:
        try:
            connection, theirs = socket.socketpair()
        except OSError as error:
            raise _cannot_start(name, spec, error) from error
        self._set_up(name, spec, connection)
        try:
            read_end, write_end = os.pipe()
        except OSError as error:
            connection.close()
            theirs.close()
            raise _cannot_start(name, spec, error) from error
        try:
            # Unbuffered (``-u``), so that the last lines before a crash reach the log. One pipe for both streams keeps
            # their order. The name is for whoever lists processes: a worker does not read it.
            self.process: Running = GroupedProcess(
                [str(spec.python), "-u", str(spec.program or MAIN), str(theirs.fileno()), name],
                pass_fds=[theirs.fileno()],
                stdout=write_end,
                stderr=write_end,
                env=spec.env,
                affinity=spec.affinity,
            )
        except OSError as error:
            self.connection.close()
            os.close(read_end)
            raise _cannot_start(name, spec, error) from error
        finally:
            # The worker has copies of both. With ours open, the end of its connection and output would not show.
            theirs.close()
            os.close(write_end)
        self.output = read_end
        self.is_silent = False
        # The loop reads it, and must never wait for more.
        os.set_blocking(read_end, False)

    def _set_up(self, name: str, spec: WorkerSpec, connection: socket.socket) -> None:
        """Set everything except the process and its output."""
        self.name = name
        self.spec = spec
        self.connection = connection
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        self.output = -1
        self.is_silent = True
        self.was_ended = False
        self._rest = b""
        self._deadline = 0.0
        # Control requests of the model without a reply yet. The event loop replies.
        self._questions: set[int] = set()
        self.send: Callable[[bytes], object] | None = None

    def begin(self, handle: ControlHandler | None = None) -> tuple[int, Any]:
        """Send the worker its load command and wait for the reply: its kind (``READY`` or ``CONFIG``) and its content.

        Blocks; called in a loading thread. ``handle`` passes on control requests of the model; without it they are
        refused. The time until the server replies to them does not count against the limit.

        Raises:
            ModelLoadError: it failed, ended or took too long; it is gone then.
        """
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.connection, selectors.EVENT_READ)
                if not self.is_silent:
                    selector.register(self.output, selectors.EVENT_READ)
                self._deadline = monotonic() + self.spec.start_s
                return self._begin(selector, handle)
        except TimeoutError:
            self.end()
            raise WorkerTimeoutError(
                f"instance '{self.name}' was not ready within {self.spec.start_s:g} s ({self.spec.setting})"
            ) from None
        except OSError as error:
            text = f"Stub process '{self.name}' is not healthy. It ended while it started: {self.exit_reason()}"
            raise ModelLoadError(text) from error
        except NaiadError:
            self.end()
            raise
        except (ValueError, KeyError, AttributeError) as error:
            self.end()
            raise ModelLoadError(
                f"instance '{self.name}' wrote to its connection what cannot be understood while it started: {error}"
            ) from error

    def _begin(self, selector: selectors.BaseSelector, handle: ControlHandler | None) -> tuple[int, Any]:
        self.connection.settimeout(self.spec.start_s)
        self.connection.sendall(frame(INIT, 0, orjson.dumps(self.spec.load_command)))
        # With a time limit a socket would wait for room before it sends a reply, and the event loop with it.
        self.connection.setblocking(False)
        while True:
            kind, size, number = FRAME.unpack(self._exactly(FRAME.size, selector))
            payload = self._exactly(size, selector)
            content = orjson.loads(payload) if payload else {}
            if kind in (READY, CONFIG):
                return kind, content
            if kind == FAILED:
                raise error_of_name(str(content.get("error") or ""), _failure(self.name, content))
            if kind == LOG:
                log_line(self.name, content)
            elif kind == CONTROL_REQUEST:
                self._handle_request(handle, number, content)
            elif kind == NOTIFICATION and handle is not None:
                handle(content, None)

    def _handle_request(self, handle: ControlHandler | None, number: int, content: Mapping[str, Any]) -> None:
        def reply(said: Mapping[str, Any]) -> None:
            self._questions.discard(number)
            send = self.send or self._send_now
            send(frame(REPLY, number, orjson.dumps(said)))

        self._questions.add(number)
        if handle is None:
            text = f"'{content.get('what', '')}' is not served while a model completes its configuration"
            reply({"error": {"message": text, "code": 12}})
        else:
            handle(content, reply)

    def _send_now(self, data: bytes) -> None:
        try:
            # On the event loop, which must not wait. A worker that does not read its replies is broken.
            if self.connection.send(data) != len(data):
                self.process.kill()
        except BlockingIOError:
            self.process.kill()
        except OSError:
            # The worker is gone, which the reader of the connection finds out.
            return

    def _exactly(self, size: int, selector: selectors.BaseSelector) -> bytes:
        """Exactly ``size`` bytes: what comes after them is for another reader."""
        found = bytearray()
        while len(found) < size:
            self._await(selector)
            if not (data := self.connection.recv(size - len(found))):
                raise ConnectionError("the worker closed its connection")
            found += data
        return bytes(found)

    def _await(self, selector: selectors.BaseSelector) -> None:
        """Wait for a frame. What the worker prints is read meanwhile, since a full pipe would stop it."""
        while True:
            now_s = monotonic()
            left_s = self._deadline - now_s
            ready = {key.fd for key, _ in selector.select(max(0.0, min(left_s, _LOOK_S)))}
            # The worker waits for the server, so its time stands still.
            if self._questions:
                self._deadline += monotonic() - now_s
            if self.output in ready:
                self.take_output()
                if self.is_silent:
                    selector.unregister(self.output)
            if self.connection.fileno() in ready:
                return
            if left_s <= 0:
                raise TimeoutError

    def take_output(self) -> bool:
        """Log what the worker has printed since, in whole lines; False when there was nothing."""
        try:
            data = os.read(self.output, _OUTPUT_BYTES)
        except BlockingIOError:
            return False
        self.is_silent = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            # A line without an end would otherwise grow in the server's memory.
            lines.append(self._rest)
            self._rest = b""
        self._keep(lines)
        return bool(data)

    def _keep(self, lines: list[bytes]) -> None:
        texts = [line.decode(errors="replace") for line in lines]
        self.lines.extend(texts)
        # Very many short lines share a record.
        step = 1 + len(texts) // _MOST_RECORDS
        for at in range(0, len(texts), step):
            logger.info("%s: %s", self.name, "\n".join(texts[at : at + step]))

    def has_ended(self) -> bool:
        """Whether the process has ended; it may take a moment to do so."""
        try:
            self.process.wait(_MOMENT_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def exit_reason(self) -> str:
        """The exit reason of the worker, with the last lines that it printed; ends it if it still runs."""
        # A crash shows as a closed connection first; its exit code or signal comes a moment later.
        self.end(_DYING_S)
        for _ in range(_LAST_READS):
            if not self.take_output():
                break
        if self._rest:
            self._keep([self._rest])
            self._rest = b""
        code = self.process.returncode
        how = f"exit code {code}" if code is None or code >= 0 else f"killed by {_signal_name(-code)}"
        if self.was_ended and code == -signal.SIGKILL:
            how = f"it closed its connection and was {how}"
        if self.spec.memory_bytes:
            how += f" (memory-limit-mb is {self.spec.memory_bytes >> 20})"
        last = "\n".join(self.lines)
        return f"{how}; its last output:\n{last}" if last else how

    def finalize(self) -> None:
        """Ask the worker to finish, in a thread that may wait until it reads; the loop may write meanwhile."""
        with contextlib.suppress(OSError), self.connection.dup() as connection:
            # The time limit belongs to the socket object: the loop's one stays non-blocking.
            connection.settimeout(END_S)
            connection.sendall(frame(FINALIZE))

    def abort(self) -> None:
        """Make ``begin`` fail, in whichever thread it waits."""
        self.process.kill()

    def end(self, grace_s: float = 0.0) -> None:
        """End the process, which has ``grace_s`` seconds to end by itself."""
        # First: a worker whose connection is closed ends by itself.
        with contextlib.suppress(OSError):
            self.connection.close()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.was_ended = True
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Close its output; the last call."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


def log_line(instance: str, content: Mapping[str, Any], model: str = "", ids: Sequence[str] = ()) -> None:
    """Log a line of a model's ``Logger``, with the file and line of the model, or a line of its worker.

    ``ids`` are those of the requests that the model has: JSON names them, and the text stays the model's own.
    """
    if (once := content.get("once")) is not None and not is_first(str(once)):
        return
    level = _LEVELS.get(str(content.get("level")), logging.INFO)
    if not logger.isEnabledFor(level):
        return
    about: dict[str, Any] = {MODEL: model}
    if len(ids) == 1:
        about[REQUEST_ID] = ids[0]
    elif any(ids):
        about[REQUEST_IDS] = [one or UNKNOWN_ID for one in ids]
    file, line, said = content.get("file"), content.get("line"), (instance, content.get("message", ""))
    if not line or not isinstance(line, int) or not isinstance(file, str):
        logger.log(level, "%s: %s", *said, extra=about)
    else:
        logger.handle(logger.makeRecord(logger.name, level, file, line, "%s: %s", said, None, extra=about))


def is_first(what: str) -> bool:
    """Whether this is the first call with ``what``: a line about the machine is logged once, not for each worker."""
    if what in _said or len(_said) > _MOST_SAID:
        return False
    _said.add(what)
    return True


def _cannot_start(name: str, spec: WorkerSpec, error: OSError) -> ModelLoadError:
    return ModelLoadError(f"instance '{name}': {spec.python} cannot be started: {error}")


def _failure(instance: str, content: Mapping[str, Any]) -> str:
    """The reason why the model did not load; its traceback, which callers do not need, goes to the log."""
    message, traceback = str(content.get("message", "")), str(content.get("traceback", ""))
    if traceback.strip() not in message:
        logger.error("%s: %s", instance, traceback, extra={FULL_TRACEBACK: True})
    return message


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

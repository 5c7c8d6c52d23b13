"""Processes that several instances share: each instance has its own connection and thread there, and all end together.

A process starts with its first instance, ends with its last, and is started once more for all of them when it dies.
Used in loading threads and on the event loop; a lock keeps the two apart.
"""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import threading
from array import array
from collections.abc import Callable
from typing import Any, Final

from naiad.backend_api.backend import WorkerSpec
from naiad.errors import ModelLoadError
from naiad.execution.worker.codec.writer import frame
from naiad.execution.worker.process import ControlHandler, WorkerProcess
from naiad.worker.ipc.frames import OPEN

END_S: Final = 5.0
_DYING_S: Final = 0.05
_LOOK_S: Final = 1.0
_SEND_S: Final = 5.0
# How many ends of the shared process an instance survives while it starts: others may have caused them.
_MOST_DEATHS: Final = 5
# The event that shows that the other end is closed, even behind unread data.
_HUNG_UP: Final = getattr(select, "POLLRDHUP", select.POLLIN)


class SharedProcesses:
    """The shared processes of one server, by the name of their group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, SharedProcess] = {}

    def connect(self, group: str, name: str, spec: WorkerSpec) -> tuple[SharedProcess, socket.socket]:
        """A connection of its own for the instance ``name``; starts the process of the group when none runs.

        Raises:
            ModelLoadError: it cannot be started.
        """
        with self._lock:
            process = self._running.get(group)
            if process is not None and process.is_running:
                # It is about to end; a new process takes its place.
                with contextlib.suppress(OSError):
                    return process, process.connect(name)
            process = self._running[group] = SharedProcess(group, spec, self._left)
            try:
                return process, process.connect(name)
            except OSError as error:
                raise ModelLoadError(f"instance '{name}': {process.name} ended as it had begun") from error

    def _left(self, process: SharedProcess) -> None:
        """An instance left: the process ends with its last one."""
        with self._lock:
            # Another instance may have connected since.
            if process.instances:
                return
            if self._running.get(process.group) is process:
                del self._running[process.group]
        # Outside the lock, since it may take ``END_S``.
        process.end()


class SharedProcess:
    """A process that several instances share.

    Attributes:
        instances: the names of the instances in it, by their connections.
        was_left: the last one has left.

    Raises:
        ModelLoadError: it cannot be started.
    """

    def __init__(self, group: str, spec: WorkerSpec, left: Callable[[SharedProcess], object]) -> None:
        self.group = group
        self.name = f"shared process '{group}'" if group else "shared process"
        self.instances: dict[socket.socket, str] = {}
        self.was_left = False
        self.worker = WorkerProcess(self.name, spec)
        self.worker.connection.settimeout(_SEND_S)
        self._left = left
        self._lock = threading.Lock()
        self._epitaph = ""
        threading.Thread(target=self._watch, name=f"naiad-watch-{group or 'shared'}", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.worker.process.poll() is None

    def connect(self, name: str) -> socket.socket:
        """A connection to a new thread of it, for the instance ``name``.

        Raises:
            OSError: it has ended.
        """
        ours, theirs = socket.socketpair()
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [theirs.fileno()]).tobytes())]
            self.worker.connection.sendmsg([frame(OPEN)], rights)
        except BaseException:
            ours.close()
            raise
        finally:
            # The process has a copy. With ours open, its end would not show.
            theirs.close()
        self.instances[ours] = name
        return ours

    def leave(self, connection: socket.socket) -> None:
        """Forget the instance that has a connection. May be called twice."""
        # One look: a loading thread and the loop may both come here.
        if self.instances.pop(connection, None) is not None:
            self._left(self)

    def end(self) -> None:
        """End it after its last instance has left. It has some seconds to do so by itself."""
        self.was_left = True
        self.worker.end(END_S)

    def exit_reason(self) -> str:
        """The exit reason, "" while it runs."""
        with self._lock:
            if not self._epitaph and self._has_ended():
                self._epitaph = self.worker.exit_reason()
            return self._epitaph

    def _has_ended(self) -> bool:
        try:
            self.worker.process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _watch(self) -> None:
        """Log what it prints until it has ended."""
        printed = select.poll()
        printed.register(self.worker.output, select.POLLIN)
        while self.is_running:
            # A closed pipe stays readable: ``poll`` would return at once, for ever.
            if self.worker.is_silent:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.worker.process.wait(_LOOK_S)
            elif printed.poll(_LOOK_S * 1000):
                # ``exit_reason`` reads the output too.
                with self._lock:
                    self.worker.take_output()
        self.exit_reason()
        with self._lock:
            self.worker.close()


class SharedProcessSlot(WorkerProcess):
    """An instance's part of a shared process, which takes the place of a process of its own.

    Raises:
        ModelLoadError: the process cannot be started.
    """

    def __init__(self, processes: SharedProcesses, group: str, name: str, spec: WorkerSpec) -> None:
        # Not ``super().__init__``, which starts a process.
        self.name, self.spec = name, spec
        self._processes = processes
        self._group = group
        self._is_aborted = False
        self._alone: WorkerProcess | None = None
        self._sit_down()

    def _sit_down(self) -> None:
        self._shared, connection = self._processes.connect(self._group, self.name, self.spec)
        self._set_up(self.name, self.spec, connection)
        self.process = SlotConnection(self._shared, connection)

    def begin(self, handle: ControlHandler | None = None) -> tuple[int, Any]:
        """Begin in the shared process.

        When that dies meanwhile, it may have been another instance's fault. Then this instance has to start in a
        process of its own, which shows that it is harmless, and begins once more in a new shared process.
        """
        for _ in range(_MOST_DEATHS):
            try:
                return super().begin(handle)
            except ModelLoadError:
                if self._is_aborted or self._shared.was_left or not self._shared.exit_reason():
                    raise
            self.end()
            self._prove(handle)
            self._sit_down()
        return super().begin(handle)

    def _prove(self, handle: ControlHandler | None) -> None:
        self._alone = WorkerProcess(self.name, self.spec)
        try:
            if self._is_aborted:
                self._alone.abort()
            self._alone.begin(handle)
        finally:
            self._alone.end()
            self._alone.close()
            self._alone = None

    def abort(self) -> None:
        """Make ``begin`` fail; the process continues for the other instances."""
        self._is_aborted = True
        if (alone := self._alone) is not None:
            alone.abort()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def take_output(self) -> bool:
        """False: the shared process prints for all."""
        return False

    def has_ended(self) -> bool:
        """Whether the shared process has ended."""
        return self._shared.worker.has_ended()

    def exit_reason(self) -> str:
        """The exit reason of the shared process, or the text that this instance alone has left it."""
        # A copy: instances come and go in other threads.
        others = ", ".join(list(self._shared.instances.values()))
        if how := self._shared.exit_reason():
            return f"the process that it shares ({others}) has ended: {how}"
        self.end()
        return f"it has left the process that it shares ({others})"

    def end(self, grace_s: float = 0.0) -> None:
        """Leave the process, which continues for the other instances."""
        with contextlib.suppress(OSError):
            self.connection.close()
        self._shared.leave(self.connection)

    def close(self) -> None:
        """Leave the process, if that has not happened; the last call."""
        self.end()


class SlotConnection:
    """The ``subprocess.Popen`` of a slot: ends and waits for one instance of the shared process."""

    def __init__(self, shared: SharedProcess, connection: socket.socket) -> None:
        self._shared = shared
        self._connection = connection

    @property
    def pid(self) -> int:
        """The number of the shared process."""
        return self._shared.worker.process.pid

    @property
    def returncode(self) -> Any:
        """The exit code of the shared process, None while it runs."""
        return self._shared.worker.process.returncode

    def poll(self) -> int | None:
        """The exit code after a check; None while it runs."""
        return self._shared.worker.process.poll()

    def kill(self) -> None:
        """Kill the shared process: nothing else ends a thread of it that does not end by itself."""
        self._shared.worker.process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the instance has closed its end of the connection, and leave.

        Raises:
            TimeoutExpired: it has not.
        """
        waiter = select.poll()
        waiter.register(self._connection, _HUNG_UP)
        if not waiter.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired(self._shared.name, timeout or 0)
        self._shared.leave(self._connection)
        return 0

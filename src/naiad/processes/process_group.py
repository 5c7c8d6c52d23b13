"""Programs that the server starts, each in a process group of its own that ends as a whole.

A group holds what a model starts or forks, however often, until it makes a session of its own (``setsid``), as a daemon
does on purpose. When the program ends, the rest of its group is killed. When the server leaves without waiting,
``kill_all`` ends all groups; when it is killed, the reaper does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from naiad.processes.affinity import ANYWHERE, Affinity
from naiad.processes.openblas import let_openblas_sleep
from naiad.processes.reaper import OrphanReaper

FileOrDescriptor = int | None
# macOS has it from Python 3.13 on.
_CAN_LOOK: Final = hasattr(os, "waitid")
_SHORTEST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.05


class GroupedProcess:
    """A running program in a group of its own, used like ``subprocess.Popen``. May be used in any thread.

    Args:
        command: the program and its arguments.
        pass_fds: descriptors that it keeps open.
        stdout: a descriptor or one of ``subprocess``'s constants; None for the server's. ``stderr`` likewise.
        env: its environment variables, None for the server's; threads of OpenBLAS sleep unless it says otherwise.
        cwd: the folder that it starts in, None for the server's.
        affinity: where it runs.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        stdout: FileOrDescriptor = None,
        stderr: FileOrDescriptor = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        affinity: Affinity = ANYWHERE,
    ) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        environment = dict(os.environ if env is None else env)
        let_openblas_sleep(environment)
        # A process begins where the thread is that starts it.
        with affinity.held():
            self._popen = subprocess.Popen(
                command,
                pass_fds=pass_fds,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                cwd=cwd,
                process_group=0,
            )
        _groups.add(self)
        _reaper.watch(self.pid)

    @property
    def pid(self) -> int:
        """The number of the process, and of its group."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit code as far as it is known, None while it runs."""
        found: int | None = self._popen.returncode
        return found

    def poll(self) -> int | None:
        """The exit code, None while it runs. With the program its group ends."""
        with self._lock:
            if not self._is_over and self._has_ended():
                self._is_over = True
                # Before the program is reaped: until then nobody else can have the group's number.
                self._kill_group()
                self._popen.poll()
                _groups.discard(self)
                _reaper.forget(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the exit code.

        Raises:
            TimeoutExpired: it runs on after ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        # Not ``Popen.wait``: it would reap the program before its group is killed.
        pause_s = _SHORTEST_PAUSE_S
        while (code := self.poll()) is None:
            left_s = _LONGEST_PAUSE_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(self._popen.args, timeout or 0)
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return code

    def terminate(self) -> None:
        """Ask the program to end (SIGTERM)."""
        with self._lock:
            if not self._is_over:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it and its group at once."""
        with self._lock:
            if not self._is_over:
                self._kill_group()
                # The program itself may have changed to another group.
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    def _has_ended(self) -> bool:
        if not _CAN_LOOK:
            return self._popen.poll() is not None
        try:
            # WNOWAIT leaves the program unreaped, and its number taken, until its group is killed.
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _kill_group(self) -> None:
        # PermissionError: macOS, when nothing but the program is left, which has ended.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def kill_all() -> None:
    """End all groups at once, before the server leaves without waiting for them."""
    # A copy: other threads start and end groups meanwhile.
    for group in list(_groups):
        group.kill()


_groups: Final[set[GroupedProcess]] = set()
_reaper: Final = OrphanReaper()

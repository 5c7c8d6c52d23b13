"""The reaper: a small program beside the server, which ends what a server that was killed leaves behind.

Processes of models notice the end of their connection and end by themselves. One that was stopped, or whose interpreter
is held by native code, does not, and neither does what a model has forked. PR_SET_PDEATHSIG would not do: it fires when
the thread ends that started the process, leaves no time for last steps, does not concern what the process forks, and is
Linux's alone. So another process holds one end of a pipe, whose closing tells it that the server is gone, however that
came about.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from naiad.execution.worker import reaper_program as reaper_program

logger = logging.getLogger("naiad")

PROGRAM: Final = Path(reaper_program.__file__)
_START_S: Final = 30.0


class OrphanReaper:
    """The server's end of the pipe. The program is started with the first group, and again if it was killed.

    Used in loading threads and on the event loop; a lock keeps them apart. Only the start waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._pipe = -1
        # Lines that the pipe had no room for, as the program was stopped (SIGSTOP).
        self._unsent = b""
        self._is_impossible = False

    def watch(self, group: int) -> None:
        """Have a process group ended with the server, from now on."""
        with self._lock:
            self._groups.add(group)
            self._send(f"+{group}\n")
            if self._pipe < 0 and not self._is_impossible:
                self._start()

    def forget(self, group: int) -> None:
        """Leave a group alone, which has ended."""
        with self._lock:
            self._groups.discard(group)
            self._send(f"-{group}\n")

    def _send(self, line: str) -> None:
        if self._pipe < 0:
            return
        self._unsent += line.encode()
        try:
            self._unsent = self._unsent[os.write(self._pipe, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            # The program was killed; the next ``watch`` starts another one.
            os.close(self._pipe)
            self._pipe = -1

    def _start(self) -> None:
        read_end = -1
        try:
            read_end, self._pipe = os.pipe()
            # The loop writes to it, and must not wait for a program that does not read.
            os.set_blocking(self._pipe, False)
            # It forks and ends, so what runs on is no child of the server, and nobody has to wait for it.
            subprocess.run(
                [sys.executable, "-I", "-S", str(PROGRAM), str(read_end)],
                pass_fds=[read_end],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                timeout=_START_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._is_impossible = True
            logger.warning("processes of models that hang may outlive a server that is killed: %s", error)
            if self._pipe >= 0:
                os.close(self._pipe)
                self._pipe = -1
            return
        finally:
            if read_end >= 0:
                os.close(read_end)
        # A new program knows no group yet, so it gets all of them.
        self._unsent = b""
        self._send("".join(f"+{group}\n" for group in self._groups))

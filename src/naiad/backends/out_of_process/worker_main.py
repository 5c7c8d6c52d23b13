"""The worker of a framework: serves its connections, each in a thread of its own."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from typing import Final

from naiad.backends.out_of_process.backend_cache import BackendCache
from naiad.backends.out_of_process.session import FrameworkSession
from naiad.worker.ipc.errors import ServerGoneError
from naiad.worker.ipc.segments import notice

logger = logging.getLogger("naiad")

TICK_S: Final = 0.25
"""How often another thread reads from the connections of instances that are busy."""
# Instances that share the interpreter wait for it half a millisecond at most, as in the server.
_SWITCH_INTERVAL_S: Final = 5e-4
_LEVELS: Final = ((logging.ERROR, "ERROR"), (logging.WARNING, "WARNING"), (logging.INFO, "INFO"))


class FrameworkWorker:
    """All sessions of this process."""

    def __init__(self, descriptor: int) -> None:
        self._backends = BackendCache()
        self._sessions: dict[FrameworkSession, None] = {}
        self._is_shared = False
        # For log lines, which go over the connection of the instance whose thread writes them.
        self._own = threading.local()
        self._first = FrameworkSession(_connection(descriptor), self._backends, self._open)
        self._sessions[self._first] = None

    def serve(self) -> int:
        """Serve until the server says to end; the exit code."""
        _ignore_signals()
        logger.addHandler(_ToServer(self))
        # All levels: the server decides which of them its log has.
        logger.setLevel(logging.DEBUG)
        # Not to stderr as well, which ends in the same log.
        logger.propagate = False
        threading.Thread(target=self._keep_looking, name="naiad-look", daemon=True).start()
        code = self._run(self._first)
        # The server ends a shared process by closing its connection.
        return 0 if self._is_shared else code

    def speaker(self) -> FrameworkSession | None:
        """The session of the calling thread, or any other; None when there is none."""
        own = getattr(self._own, "session", None)
        # The server does not read from the first connection of a shared process.
        may_speak = [s for s in list(self._sessions) if not (self._is_shared and s is self._first)]
        return own if own in may_speak else next(iter(may_speak), None)

    def _open(self, descriptor: int) -> None:
        """Serve one more connection: this process is a shared one."""
        if not self._is_shared:
            self._is_shared = True
            # Not for a process with one instance, which has nobody to share the interpreter with.
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
        session = FrameworkSession(_connection(descriptor), self._backends)
        self._sessions[session] = None
        threading.Thread(target=self._run, args=[session], name="naiad-instance", daemon=True).start()

    def _run(self, session: FrameworkSession) -> int:
        self._own.session = session
        try:
            return session.serve()
        finally:
            del self._sessions[session]

    def _keep_looking(self) -> None:
        """Answer the server, and notice its end, while the instances are busy."""
        pause = threading.Event()
        while True:
            pause.wait(TICK_S)
            # A copy: instances come and go in their own threads.
            for session in list(self._sessions):
                self._look(session)
            speaker = self.speaker()
            if speaker is not None and (text := notice.take()):
                speaker.log("WARNING", text, once="memory")

    def _look(self, session: FrameworkSession) -> None:
        try:
            session.look()
        except ServerGoneError:
            # Without the server a process ends at once. A shared process that lost one instance serves the others, and
            # the thread of that instance finds out when it is done.
            if session is self._first:
                os._exit(1)


class _ToServer(logging.Handler):
    """Writes what backends log into the server's log."""

    def __init__(self, worker: FrameworkWorker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        level = next((name for number, name in _LEVELS if record.levelno >= number), "VERBOSE")
        speaker = self._worker.speaker()
        if speaker is not None:
            speaker.log(level, self.format(record))
        else:
            sys.stderr.write(self.format(record) + "\n")


def serve(descriptor: int) -> int:
    """Serve the connection with that descriptor, and the connections that arrive over it; the exit code."""
    return FrameworkWorker(descriptor).serve()


def _connection(descriptor: int) -> socket.socket:
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    connection.setblocking(True)
    return connection


def _ignore_signals() -> None:
    """Leave it to the server when to end: a Ctrl-C reaches every process of the terminal at once."""
    # A function and not SIG_IGN, which programs that a framework starts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)

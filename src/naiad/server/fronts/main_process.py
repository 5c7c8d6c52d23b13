"""The main process of a server of several processes: it starts them, connects them, and starts again what was killed.

It serves nothing itself and has no state that matters, so that little can end it. A process that a signal has killed is
started again. One that ends by itself has found that the server cannot go on, and ends the whole.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from naiad.errors import OptionError
from naiad.server.fronts.control import ENGINE, FRONT, LISTENING, READY, make_link, send_role
from naiad.server.fronts.ports import settled_ports
from naiad.server.process import SAME_SIGNAL_S
from naiad.server.reload import reloaded_paths

if TYPE_CHECKING:
    from naiad.options import ServerOptions
    from naiad.telemetry.logs.server_log import ServerLog

logger = logging.getLogger("naiad")

Started = tuple[asyncio.subprocess.Process, socket.socket]
SHORT_LIFE_S: Final = 10.0
"""A process that was killed within this time is started again after a pause."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
LEAVE_S: Final = 5.0
"""How long front ends may take to end after the engine's process has, in seconds."""


async def start_process(serves_grpc: bool) -> Started:
    """Start a process, which waits for its role; it and the main process's end of its control connection.

    Args:
        serves_grpc: it imports what gRPC needs before it has its role.
    """
    wanted = ("grpc",) if serves_grpc else ()
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "naiad.server.fronts.program", str(theirs.fileno()), *wanted),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            # A terminal's Ctrl-C is for the main process, which passes it on.
            process_group=0,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


class ServerProcess:
    """One process, with its successors.

    Attributes:
        control: the main process's end of the control connection; None while it does not run.
        has_listened: a front end has opened its ports once.
    """

    def __init__(self, main: MainProcess, kind: str, number: int) -> None:
        self.control: socket.socket | None = None
        self.has_listened = False
        self._main = main
        self._kind = kind
        self._number = number
        self._process: asyncio.subprocess.Process | None = None
        self._is_ready = self._wants_reload = False

    @property
    def name(self) -> str:
        """What it is, for the log."""
        return "the engine's process" if self._kind == ENGINE else f"front-end process {self._number}"

    async def live(self, on_start: Callable[[], None]) -> int:
        """Start it, again whenever it was killed; returns the exit code of one that has ended by itself."""
        pause_s = 0.0
        while True:
            began_s = monotonic()
            code = await self._live_once(on_start)
            if not self._should_return(code):
                return code
            if monotonic() - began_s >= SHORT_LIFE_S:
                pause_s = 0.0
            how = f"was killed by signal {-code}" if code < 0 else f"has ended with {code}"
            logger.error("%s %s: it is started again", self.name, how)
            # The first time at once.
            await asyncio.sleep(pause_s)
            if not self._should_return(code):
                return code
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)

    def _should_return(self, code: int) -> bool:
        """Whether it is to be started again: it was killed, or is a front end that could serve before."""
        return not self._main.is_stopping and (code < 0 or self.has_listened)

    async def _live_once(self, on_start: Callable[[], None]) -> int:
        process = await self._start()
        on_start()
        code = await process.wait()
        self._close()
        return code

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def reload(self) -> None:
        """Let it read its files again; one that does not handle the signal yet, which would end it, gets it later."""
        self._wants_reload = not self._is_ready
        if self._is_ready:
            self.signal(signal.SIGHUP)

    async def _start(self) -> asyncio.subprocess.Process:
        process, ours = await self._main.take_process()
        self._process = process
        self.control = ours
        with suppress(OSError):
            send_role(ours, (self._kind, self._number, self._main.options))
        ours.setblocking(False)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read, ours)
        return process

    def _read(self, control: socket.socket) -> None:
        try:
            data = control.recv(64)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if READY in data:
            self._is_ready = True
            if self._wants_reload:
                self.reload()
        if LISTENING in data:
            self.has_listened = True
            self._main.keep_spare()
        if not data:
            asyncio.get_running_loop().remove_reader(control.fileno())

    def _close(self) -> None:
        if self.control is not None:
            asyncio.get_running_loop().remove_reader(self.control.fileno())
            self.control.close()
            self.control = None
        self._is_ready = self._wants_reload = False


class MainProcess:
    """Runs the engine's process and the front-end processes of one server.

    Attributes:
        options: those of the server, with the numbers of its ports.
        is_stopping: nothing is started again any more.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.is_stopping = False
        self._engine = ServerProcess(self, ENGINE, 0)
        self._fronts = [ServerProcess(self, FRONT, number) for number in range(options.frontend_count)]
        self._stopped_s = 0.0
        self._spare: asyncio.Future[Started] | None = None

    async def take_process(self) -> Started:
        """A process without a role: the spare one, or a new one."""
        spare, self._spare = self._spare, None
        if spare is None:
            return await start_process(self.options.serves_grpc)
        process, control = await spare
        if process.returncode is None:
            return process, control
        control.close()
        return await start_process(self.options.serves_grpc)

    def keep_spare(self) -> None:
        """Have a process ready in place of one that will be killed: importing its program takes most of its start."""
        if self._spare is None and not self.is_stopping:
            self._spare = asyncio.ensure_future(start_process(self.options.serves_grpc))

    async def _end_spare(self) -> None:
        if self._spare is not None:
            process, control = await self._spare
            # It ends when its control connection does.
            control.close()
            await process.wait()

    async def run(self) -> int:
        """Serve until a signal stops the server, or a process ends by itself; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        if reloaded_paths(self.options) or self.options.log_file:
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        engine = asyncio.ensure_future(self._engine.live(self._engine_started))
        fronts = [asyncio.ensure_future(self._live_front(front)) for front in self._fronts]
        await asyncio.wait([engine, *fronts], return_when=asyncio.FIRST_COMPLETED)
        # While it stops, front ends end before the engine's process, which has the exit code.
        failed = [front.result() for front in fronts if front.done()] if not self.is_stopping else []
        self.is_stopping = True
        if failed:
            # A front end cannot open its ports, so there is nothing to drain; the engine may wait for them to be open.
            self._engine.signal(signal.SIGTERM)
            done, _ = await asyncio.wait([engine], timeout=LEAVE_S)
            if not done:
                self._engine.signal(signal.SIGKILL)
        code = await engine
        await self._end_fronts(fronts)
        await self._end_spare()
        return next(filter(None, failed), code if code >= 0 else 1)

    async def _live_front(self, front: ServerProcess) -> int:
        return await front.live(lambda: self._connect(front))

    def _engine_started(self) -> None:
        for front in self._fronts:
            self._connect(front)

    def _connect(self, front: ServerProcess) -> None:
        if self._engine.control is not None and front.control is not None:
            # One of them may have just died; it is connected when it is there again.
            with suppress(OSError):
                make_link(self._engine.control, front.control)

    def _stop(self, number: int) -> None:
        if self.is_stopping and monotonic() - self._stopped_s < SAME_SIGNAL_S:
            return
        if not self.is_stopping:
            self._stopped_s = monotonic()
            self.is_stopping = True
        # The engine's process drains the front ends; a second signal ends it at once.
        self._engine.signal(number)

    def _reload(self) -> None:
        for process in (self._engine, *self._fronts):
            process.reload()

    async def _end_fronts(self, fronts: Sequence[asyncio.Future[int]]) -> None:
        pending: set[asyncio.Future[int]] = set(fronts)
        for number, wait_s in ((signal.SIGTERM, LEAVE_S), (signal.SIGKILL, None)):
            if number == signal.SIGKILL or not self._stopped_s:
                for front in self._fronts:
                    front.signal(number)
            if pending:
                _, pending = await asyncio.wait(pending, timeout=wait_s)


def run_processes(options: ServerOptions, log: ServerLog) -> int:
    """Serve with ``options`` in several processes until a signal stops the server; returns the exit code."""
    try:
        settled = settled_ports(options)
    except OptionError as error:
        logger.error("error: creating server: %s", error)
        return 1
    try:
        return asyncio.run(MainProcess(settled.options).run())
    finally:
        settled.close()

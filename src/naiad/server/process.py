"""The process around a server: event loop, signals, the limit of open files, and the exit."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from naiad.backend_api.host_policy import FRONTEND, HostPolicies
from naiad.errors import OptionError
from naiad.processes.process_group import kill_all
from naiad.processes.time_slice import shorten_time_slice

logger = logging.getLogger("naiad")

SWITCH_INTERVAL_S = 5e-4
"""How long a thread may keep the interpreter while another waits for it.

Python's 5 ms let a busy loop hold an instance's finished batch back (p99 at 16 callers 0.85 ms); 0.1 ms costs a fifth
more processor time in switches for the same tail as 0.5 ms (0.60 ms).
"""

OTHER_FILES = 800
"""Open files beside the connections: the log, the listeners, TLS handshakes, the frameworks and loads."""

SAME_SIGNAL_S = 1.0
"""A second signal within this time repeats the first: ``timeout`` and shells signal a process and its group."""


class StopSignals:
    """SIGINT and SIGTERM: the first one requests a shutdown, a later one ends the process at once.

    Args:
        on_first: called with the name of the first signal, before ``received`` is set.
    """

    def __init__(self, on_first: Callable[[str], None]) -> None:
        self.received = asyncio.Event()
        self._on_first = on_first
        self._received_s = 0.0

    def watch(self, on_reload: Callable[[], None] | None = None) -> None:
        """Handle signals on the running loop; SIGHUP calls ``on_reload``, if there is one."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._take, signal.Signals(number).name)
        if on_reload is not None:
            loop.add_signal_handler(signal.SIGHUP, on_reload)

    def stop(self, reason: str) -> None:
        """Request a shutdown as a signal does, unless one was requested."""
        if not self.received.is_set():
            self._take(reason)

    def _take(self, name: str) -> None:
        if self.received.is_set():
            if monotonic() - self._received_s < SAME_SIGNAL_S:
                return
            logger.error("%s again: exiting at once, requests in flight are lost", name)
            exit_now(1)
        self._received_s = monotonic()
        # Before the event, which wakes the server: it then reads how it is to stop.
        self._on_first(name)
        self.received.set()


def run_on_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run ``main`` on the event loop of this process, uvloop's where it is installed."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    shorten_time_slice()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """The event loop of servers: uvloop's where it is installed, else None for the platform's own."""
    try:
        import uvloop
    except ImportError:
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


def allow_open_files(http: int, grpc: int, regions: int, others: int = 0) -> None:
    """Raise the process's limit of open files to the need of its connections and shared-memory regions.

    A limit that stays too low for the larger of both ports is warned about: the kernel would then drop connections
    before the server sees them.

    Args:
        http: the most connections on the HTTP port.
        grpc: the most connections on the gRPC port; 0 without one.
        regions: the most shared-memory regions of clients.
        others: the most connections on further ports.
    """
    try:
        import resource
    except ImportError:
        return
    wanted, needed = http + grpc + regions + others + OTHER_FILES, max(http, grpc) + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return
    allowed = wanted if hard == unlimited else min(wanted, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        logger.warning(
            "only %d files may be open, %d would do for --http-max-connections and --grpc-max-connections: raise the "
            "limit (ulimit -n) or lower the options",
            allowed,
            needed,
        )


def place_frontend(policies: HostPolicies) -> None:
    """Let the calling thread, which runs the event loop, run where the host policy ``frontend`` says.

    The threads and processes that it starts for requests go with it. Loads place themselves.

    Raises:
        OptionError: this machine does not have what the policy asks for.
    """
    if problem := policies.problem(FRONTEND):
        raise OptionError(f"the event loop has the {problem}")
    found = policies.affinities.get(FRONTEND)
    if found is not None:
        found.apply()
        logger.info("the event loop runs on %s (host policy '%s')", found, FRONTEND)


def exit_now(code: int) -> None:
    """End the process and the workers, which may hang, at once."""
    kill_all()
    leave_threads(code)


def leave_threads(code: int) -> None:
    """End the process without waiting for threads, which may be inside a model."""
    # ``os._exit`` flushes nothing, and a normal exit would join the threads of the models.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)

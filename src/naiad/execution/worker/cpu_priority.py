"""The process of a framework gives way to requests while it loads its model, and while it ends (Linux).

It runs when nothing else wants to (``SCHED_IDLE``). What wakes up on its core is run at once then; beside a process
that is only nicer it waits until the other's turn is over, which moves the tail of all other models. A load that gets
hardly any time that way is made nicer instead, and goes on slowly but surely.

A process hands these down to its threads, those of the framework too, so all of them get the server's back. A server
that may not give them back (no CAP_SYS_NICE) leaves processes as they are. Threads of the server never give way: one
that holds the interpreter and is not run would hold up the loop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

BY: Final = 5
"""How much nicer: a quarter of a core beside a thread that never rests, and all the time that nobody else wants."""
PATIENCE_S: Final = 5.0
"""So long a process may wait for a core beyond what it would wait with a quarter of one."""
_WAITS_PER_RUN: Final = 3
_NICEST: Final = 19
_TASKS: Final = "/proc/{}/task"
_TIMES: Final = "/proc/{}/schedstat"


class CpuPriority:
    """One process that gives way from now on. Used by one thread at a time, while the process is not waited for.

    Args:
        pid: of the process.
        patience_s: as ``PATIENCE_S``.
    """

    def __init__(self, pid: int, patience_s: float = PATIENCE_S) -> None:
        self._pid = pid
        self._patience_s = patience_s
        self._is_whole = can_give_way()
        if self._is_whole:
            _for_all_tasks(pid, _set_idle)

    def look(self) -> None:
        """Give way in part only, if the process is hardly run. To be called about once a second."""
        if not self._is_whole:
            return
        with suppress(OSError, ValueError):
            run_ns, waited_ns, _ = map(int, Path(_TIMES.format(self._pid)).read_text().split())
            if waited_ns - _WAITS_PER_RUN * run_ns > self._patience_s * 1e9:
                self._is_whole = False
                _for_all_tasks(self._pid, _set_nicer)

    def end(self) -> None:
        """Give all its threads what the server's first thread has."""
        self._is_whole = False
        if can_give_way():
            _for_all_tasks(self._pid, _set_own)


@cache
def can_give_way() -> bool:
    """Whether this process may give way and take that back; tried in a thread that ends with it."""
    found: list[bool] = []

    def attempt() -> None:
        task = threading.get_native_id()
        with suppress(OSError, AttributeError):
            # A server that has a policy for what is urgent, or for what is not, was given it on purpose.
            if os.sched_getscheduler(os.getpid()) == os.SCHED_OTHER and Path(_TIMES.format("self")).exists():
                _set_idle(task)
                _set_nicer(task)
                _set_own(task)
                found.append(os.path.isdir(_TASKS.format("self")))

    thread = threading.Thread(target=attempt, name="naiad-niceness")
    thread.start()
    thread.join()
    return found == [True]


def _for_all_tasks(pid: int, change: Callable[[int], None]) -> None:
    with suppress(OSError):
        # A thread that is started meanwhile may still be as it was; then there is one more than before.
        seen: set[str] = set()
        while tasks := set(os.listdir(_TASKS.format(pid))) - seen:
            seen |= tasks
            for task in tasks:
                with suppress(OSError):
                    change(int(task))


def _set_idle(task: int) -> None:
    os.sched_setscheduler(task, os.SCHED_IDLE, os.sched_param(0))


def _set_nicer(task: int) -> None:
    os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, task, min(_NICEST, _own() + BY))


def _set_own(task: int) -> None:
    os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, task, _own())


def _own() -> int:
    """The niceness of the server: that of its first thread."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())

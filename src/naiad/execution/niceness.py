"""The process of a framework gives way to requests while it loads its model: it is nicer until that is there (Linux).

A process hands its niceness on to its threads, those of the framework too, so all of them get the server's back. A
server that may not give it back (no CAP_SYS_NICE) leaves processes as they are. Threads of the server never give way:
one that holds the interpreter and is not run would hold up the loop.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cache
from typing import Final

BY: Final = 5
"""How much nicer: a quarter of a core beside a thread that never rests, and all the time that nobody else wants. With
10 it is a tenth, and a load on a busy machine takes too long."""
_NICEST: Final = 19
_TASKS: Final = "/proc/{}/task"


def yield_to_requests(pid: int) -> None:
    """Let a process that was just started give way to others."""
    if can_yield():
        _set(pid, min(_NICEST, _own() + BY))


def yield_no_more(pid: int) -> None:
    """Give all threads of a process the niceness of the server."""
    if not can_yield():
        return
    own = _own()
    with suppress(OSError):
        # A thread that is started meanwhile may still be nicer; then there is one more than before.
        seen: set[str] = set()
        while tasks := set(os.listdir(_TASKS.format(pid))) - seen:
            seen |= tasks
            for task in tasks:
                _set(int(task), own)


@cache
def can_yield() -> bool:
    """Whether this process may raise a niceness and lower it again; tried in a thread that ends with it."""
    found: list[bool] = []

    def attempt() -> None:
        with suppress(OSError, AttributeError):
            task, own = threading.get_native_id(), _own()
            os.setpriority(os.PRIO_PROCESS, task, min(_NICEST, own + 1))
            os.setpriority(os.PRIO_PROCESS, task, own)
            found.append(os.path.isdir(_TASKS.format("self")))

    thread = threading.Thread(target=attempt, name="naiad-niceness")
    thread.start()
    thread.join()
    return found == [True]


def _own() -> int:
    """The niceness of the server: that of its first thread."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


def _set(task: int, niceness: int) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, task, niceness)

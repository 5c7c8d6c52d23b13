"""Watches the process: how late its event loop is, who had the interpreter then, collections and page faults.

The loop has a timer that looks at the process every 20 ms and notes when it came. A thread wakes as often, and does
more than note its own delay only while the loop is late: each call of a thread takes the interpreter from the loop.
What they see is ``Evidence``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import mmap
import os
import sys
import threading
from collections.abc import Callable
from time import monotonic_ns, process_time_ns, thread_time_ns
from typing import Any, Final

from naiad.telemetry.slow.evidence import LEAST_NS, SAMPLE_S, Evidence, Incident, ProcessSample, Stall

try:
    import resource
except ImportError:
    # Windows does not have it.
    resource = None  # type: ignore[assignment]

_SAMPLE_NS: Final = int(SAMPLE_S * 1e9)
_PAGE_BYTES: Final = mmap.PAGESIZE
_LOADING: Final = "naiad-load"
"""The name of threads that load and unload models."""


class ProcessWatch:
    """Fills ``evidence`` from ``start`` to ``close``, both called on the loop.

    Attributes:
        late_ns: how late the loop has been, all together.
        latest_ns: the latest that it has been in one turn.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Taken until the end. To wait for an event would run Python code, in which the loop has to wait.
        self._open = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._run_queue: int | None = None
        self._memory: int | None = None
        self._due_ns = self._cpu_ns = self._process_ns = self._delay_ns = self._looked_ns = 0
        self._collection_ns = 0
        self._place = ""
        self.late_ns = self.latest_ns = 0

    def start(self) -> None:
        """Begin to watch the running loop; a second call has no effect."""
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        # The time that the loop was ready to run and had no processor. Only Linux has it.
        with contextlib.suppress(OSError):
            self._run_queue = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        with contextlib.suppress(OSError):
            self._memory = os.open("/proc/self/statm", os.O_RDONLY)
        gc.callbacks.append(self._collected)
        self._rearm()
        self._looked_ns = monotonic_ns()
        self._open.acquire()
        self._thread = threading.Thread(target=self._look, name="naiad-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        if self._loop is None:
            return
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        gc.callbacks.remove(self._collected)
        if self._thread is not None:
            self._open.release()
            self._thread.join()
        for descriptor in (self._run_queue, self._memory):
            if descriptor is not None:
                os.close(descriptor)

    # On the loop

    def later(self, call: Callable[[], object], after_s: float = 2 * SAMPLE_S) -> None:
        """Call back when what happens now has become evidence, or after a number of seconds."""
        if self._loop is not None:
            self._loop.call_later(after_s, call)

    def _rearm(self) -> None:
        if self._loop is None:
            return
        self._cpu_ns, self._process_ns, self._delay_ns = thread_time_ns(), process_time_ns(), self._delayed_ns()
        self._due_ns = monotonic_ns() + _SAMPLE_NS
        self._timer = self._loop.call_later(SAMPLE_S, self._beat)

    def _beat(self) -> None:
        now_ns, due_ns = monotonic_ns(), self._due_ns
        late_ns = now_ns - due_ns
        # The loop's timers count whole milliseconds.
        if late_ns > LEAST_NS:
            self.late_ns += late_ns
            self.latest_ns = max(self.latest_ns, late_ns)
            # The turn that made it late may have begun before the timer was due.
            begin_ns = due_ns - _SAMPLE_NS
            waited_ns = now_ns - begin_ns
            ran_ns, delayed_ns = thread_time_ns() - self._cpu_ns, self._delayed_ns() - self._delay_ns
            kind = self._kind(due_ns, now_ns, late_ns, ran_ns, delayed_ns)
            # It cannot have stood still for longer than it was late and had time to begin before.
            first_ns = now_ns - min(waited_ns, late_ns + min(ran_ns, _SAMPLE_NS))
            self._evidence.stops.append(Stall(kind, first_ns, now_ns, self._place))
        self._place = ""
        self._sample(now_ns)
        self._rearm()

    def _kind(self, due_ns: int, now_ns: int, late_ns: int, ran_ns: int, delayed_ns: int) -> Incident:
        if ran_ns * 2 >= late_ns:
            return Incident.LOOP_LATE
        # The thread below could not run either, or still cannot.
        missing_ns = max(0, now_ns - max(self._looked_ns + _SAMPLE_NS, due_ns))
        is_held = max(missing_ns, self._evidence.watcher_late_ns(due_ns, now_ns)) * 2 >= late_ns
        # A thread that waits for the interpreter wakes all the time, and waits for a processor as well where these are
        # taken. What tells the two apart is whether another thread of the process ran meanwhile.
        others_ran_ns = process_time_ns() - self._process_ns - ran_ns
        if delayed_ns * 2 >= late_ns and not (is_held and others_ran_ns * 20 >= late_ns):
            return Incident.MACHINE_BUSY
        return Incident.INTERPRETER_HELD if is_held else Incident.LOOP_LATE

    def _resident_bytes(self) -> int:
        if self._memory is None:
            return 0
        return int(os.pread(self._memory, 128, 0).split()[1]) * _PAGE_BYTES

    def _delayed_ns(self) -> int:
        if self._run_queue is None:
            return 0
        return int(os.pread(self._run_queue, 64, 0).split()[1])

    # In any thread

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collection_ns = monotonic_ns()
        elif (now_ns := monotonic_ns()) - self._collection_ns > LEAST_NS:
            self._evidence.stops.append(Stall(Incident.COLLECTION, self._collection_ns, now_ns))

    def _sample(self, now_ns: int) -> None:
        counters = 0, 0, 0, 0
        if resource is not None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            system_ns, user_ns = int(used.ru_stime * 1e9), int(used.ru_utime * 1e9)
            counters = used.ru_minflt, used.ru_majflt, system_ns, system_ns + user_ns
        is_loading = any(thread.name == _LOADING for thread in threading.enumerate())
        self._evidence.samples.append(ProcessSample(now_ns, *counters, is_loading, self._resident_bytes()))

    # In the thread

    def _look(self) -> None:
        due_ns = monotonic_ns() + _SAMPLE_NS
        while not self._open.acquire(timeout=max(0, due_ns - monotonic_ns()) / 1e9):
            self._looked_ns = now_ns = monotonic_ns()
            if now_ns - due_ns > LEAST_NS:
                self._evidence.watcher_waits.append((due_ns, now_ns))
            if now_ns - self._due_ns > LEAST_NS:
                self._look_at_late_loop(now_ns)
            due_ns = max(due_ns, now_ns) + _SAMPLE_NS

    def _look_at_late_loop(self, now_ns: int) -> None:
        self._sample(now_ns)
        if not self._place:
            # This thread has the interpreter: here is what the loop does.
            self._place = _place_of(sys._current_frames().get(self._loop_thread))


def _place_of(frame: Any) -> str:
    """The innermost call of a stack, and where it stands."""
    if frame is None:
        return ""
    code = frame.f_code
    return f"{code.co_name} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"

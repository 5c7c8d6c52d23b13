"""Traces as JSON in files, written by a thread, so that the loop never waits for a disk.

Source of the format: ``tracer.cc`` of the reference. A file is an array; a trace is several objects in it: the request,
its timestamps, and one object for each tensor. A file is valid JSON whenever it is read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from naiad.telemetry.tracing.trace import Trace, TraceOutput, in_utf8
from naiad.telemetry.tracing.writer_thread import TraceThread

logger = logging.getLogger("naiad")

MAX_WAITING: Final = 10_000
"""Traces that may wait for the disk; further traces are dropped and counted."""

MAX_TENSOR_BYTES: Final = 64 << 20
"""Bytes of tensors in the waiting traces; a trace that would exceed it is dropped as well."""

_GATHER_S: Final = 0.05
"""How long a trace waits for others: a thread that wakes for each one would stop the event loop as often."""
_CHUNK: Final = 1 << 20
_END: Final = b"\n]\n"


def trace_text(trace: Trace) -> bytes:
    """The objects of a trace, divided by commas."""
    head: dict[str, object] = {"id": trace.id, "model_name": in_utf8(trace.model), "model_version": trace.version}
    if trace.request_id:
        head["request_id"] = in_utf8(trace.request_id)
    if trace.parent_id:
        head["parent_id"] = trace.parent_id
    items = [head]
    if trace.timestamps:
        items.append({"id": trace.id, "timestamps": [{"name": name, "ns": ns} for name, ns in trace.timestamps]})
    items += ({"id": trace.id, "activity": t.activity, "tensor": t.described()} for t in trace.tensors)
    return b",".join((*map(orjson.dumps, items), *map(trace_text, trace.children)))


class _ArrayFile:
    """A file with a growing JSON array; its former content is overwritten.

    Traces are written together, in one call over the end of the array: the file can be read at any time, unlike the
    reference's.
    """

    def __init__(self, path: str) -> None:
        # Without a buffer of its own, which would write an array without its end.
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        # Where the end of the array begins.
        self._end = 0
        self.count = 0

    def append(self, text: bytes) -> None:
        self.count += 1
        self._waiting.append(text)
        self._waiting_bytes += len(text)
        if self._waiting_bytes >= _CHUNK:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        text = (b",\n" if self._end else b"[\n") + b",\n".join(self._waiting)
        # Dropped also if they cannot be written: a full disk must not fill the memory.
        self._waiting, self._waiting_bytes = [], 0
        if self._end:
            self._file.seek(self._end)
        rest = memoryview(text + _END)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._end += len(text)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()


class TraceWriter:
    """Writes traces to ``path``, and to ``path`` with ``.0``, ``.1`` and so on at its end."""

    mode = "triton"
    takes_tensors = True
    takes_parents = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._thread: TraceThread[tuple[TraceOutput, Trace | None]] = TraceThread("naiad-trace", self._run, "written")
        # Bytes of tensors that the loop has added, and that the thread has written. Each thread writes one of the two,
        # so they need no lock.
        self._given_bytes = self._done_bytes = 0
        self._index = 0
        self._whole: _ArrayFile | None = None
        self._unflushed: set[_ArrayFile] = set()
        self._has_failed = False
        self._is_idle = True

    def problem(self) -> str:
        """Why the file cannot be written; "" when it can."""
        folder = Path(self.path).absolute().parent
        if Path(self.path).is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            return f"cannot write {self.path}: name a file in a folder that exists and may be written"
        return ""

    def shown(self) -> dict[str, str]:
        """The file, as the protocol shows it."""
        return {"trace_file": self.path}

    # On the loop

    def put(self, output: TraceOutput, trace: Trace | None) -> None:
        """Write ``trace`` soon. None ends ``output``."""
        if trace is not None:
            held = trace.tensor_bytes
            has_memory = self._given_bytes - self._done_bytes + held <= MAX_TENSOR_BYTES
            # No room of any size: the trace counts as dropped, whichever bound it exceeds.
            if not self._thread.has_room(MAX_WAITING if has_memory else 0):
                return
            self._given_bytes += held
        self._thread.items.put((output, trace))

    def close(self, timeout_s: float) -> None:
        """Write the queued traces, for ``timeout_s`` seconds at most. No other method may be called after it."""
        self._thread.close(timeout_s)

    # In the thread

    def _run(self) -> None:
        while (item := self._thread.items.get()) is not None:
            if self._is_idle:
                self._is_idle = False
                self._thread.gather(_GATHER_S)
            self._attempt(self._take, *item)
            if self._thread.items.empty():
                self._is_idle = True
                self._thread.log_dropped()
        if self._whole is not None:
            self._attempt(self._whole.close)
        self._thread.log_dropped()

    def _attempt(self, step: Callable[..., None], *arguments: object) -> None:
        """A failing disk is logged once, until a write succeeds again."""
        try:
            step(*arguments)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                logger.error("traces cannot be written to %s: %s", self.path, error)
            self._has_failed = True

    def _take(self, output: TraceOutput, trace: Trace | None) -> None:
        if trace is None:
            self._finish(output)
        else:
            self._done_bytes += trace.tensor_bytes
            self._write(output, trace)
        if self._thread.items.empty():
            # Only now, so that a burst of traces is one write per file.
            while self._unflushed:
                self._unflushed.pop().flush()

    def _write(self, output: TraceOutput, trace: Trace) -> None:
        file = self._file_for(output)
        file.append(trace_text(trace))
        if output.per_file and file.count >= output.per_file:
            self._finish(output)
        else:
            self._unflushed.add(file)

    def _file_for(self, output: TraceOutput) -> _ArrayFile:
        if not output.per_file:
            if self._whole is None:
                self._whole = _ArrayFile(self.path)
            return self._whole
        if not isinstance(output.file, _ArrayFile):
            output.file = _ArrayFile(f"{self.path}.{self._index}")
            self._index += 1
        return output.file

    def _finish(self, output: TraceOutput) -> None:
        file, output.file = output.file, None
        if isinstance(file, _ArrayFile):
            self._unflushed.discard(file)
            file.close()

"""A trace: what is known of one request when it is answered, and who takes traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from naiad.telemetry.tracing.tensors import TracedTensor
from naiad.telemetry.tracing.w3c import TraceParent


@dataclass(frozen=True, slots=True)
class Trace:
    """One request.

    Attributes:
        id: from 1 on, unique in the process.
        timestamps: names and monotonic times in ns, in their order; empty when they are not traced.
        tensors: those that are traced; empty when none is.
        parent: the caller's own trace that this one belongs to.
        error: why the request failed, "" when it did not.
        parent_id: the trace that it is part of, 0 for none.
        children: traces that are part of it: those of the steps of an ensemble.
    """

    id: int
    model: str
    version: int
    request_id: str
    timestamps: tuple[tuple[str, int], ...] = ()
    tensors: tuple[TracedTensor, ...] = ()
    parent: TraceParent | None = None
    error: str = ""
    parent_id: int = 0
    children: tuple[Trace, ...] = ()

    @property
    def tensor_bytes(self) -> int:
        """What its tensors hold, with those of its children."""
        return sum(t.nbytes for t in self.tensors) + sum(child.tensor_bytes for child in self.children)


def in_utf8(text: str) -> str:
    """``text`` without what has no place in UTF-8, such as parts of a folder's name that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()


class TraceOutput:
    """What the traces of one scope have in common: ``per_file`` of them go into a numbered file, for 0 all into one.

    The thread of the sink alone uses it.
    """

    def __init__(self, per_file: int) -> None:
        self.per_file = per_file
        self.file: object = None


class TraceSink(Protocol):
    """Takes traces on the loop and brings them to their place in a thread.

    Attributes:
        mode: its name in the settings.
        takes_tensors: whether tensors have a place there.
        takes_parents: whether callers may bring a trace of their own, which this one goes on with.
    """

    mode: str
    takes_tensors: bool
    takes_parents: bool

    def problem(self) -> str:
        """Why it could not work; "" when nothing speaks against it."""

    def shown(self) -> Mapping[str, str]:
        """Its settings as the protocol shows them."""

    def put(self, output: TraceOutput, trace: Trace | None) -> None:
        """Take a trace; None when no more come for ``output``."""

    def close(self, timeout_s: float) -> None:
        """Bring what waits to its place, for ``timeout_s`` seconds at most; the last call."""

"""A trace of one request, and the interface of its destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from naiad.telemetry.tracing.tensors import TracedTensor
from naiad.telemetry.tracing.w3c import TraceParent


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of one request.

    Attributes:
        id: from 1 on, unique in the process.
        timestamps: names and monotonic times in ns, in their order; empty when they are not traced.
        tensors: the traced tensors; empty when none is traced.
        parent: the caller's span that this trace continues; None without one.
        error: the error of a failed request, else "".
        parent_id: the id of the trace of the ensemble that it is part of, 0 for none.
        children: the traces of the steps of an ensemble, or of the calls of a model.
        trace_id, span_id: of the span of the model's run, where they were chosen before; else 0.
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
    trace_id: int = 0
    span_id: int = 0

    @property
    def tensor_bytes(self) -> int:
        """The bytes of its tensors, those of its children included."""
        return sum(t.nbytes for t in self.tensors) + sum(child.tensor_bytes for child in self.children)


def in_utf8(text: str) -> str:
    """``text`` without characters that UTF-8 cannot encode, such as undecodable bytes of a folder's name."""
    return text.encode("utf-8", "backslashreplace").decode()


class TraceOutput:
    """The file numbering of one scope's traces: ``per_file`` of them per numbered file, with 0 all in one file.

    The thread of the sink alone uses it.
    """

    def __init__(self, per_file: int) -> None:
        self.per_file = per_file
        self.file: object = None


class TraceSink(Protocol):
    """A destination of traces: takes them on the loop and stores them in a thread.

    Attributes:
        mode: the name of the destination in the settings.
        takes_tensors: whether it stores tensors.
        takes_parents: whether a trace may continue a span of the caller.
    """

    mode: str
    takes_tensors: bool
    takes_parents: bool

    def problem(self) -> str:
        """Why the destination cannot be used; "" when it can."""

    def shown(self) -> Mapping[str, str]:
        """Its settings as the protocol shows them."""

    def put(self, output: TraceOutput, trace: Trace | None) -> None:
        """Take a trace. None ends ``output``."""

    def close(self, timeout_s: float) -> None:
        """Store the queued traces, for ``timeout_s`` seconds at most. No other method may be called after it."""

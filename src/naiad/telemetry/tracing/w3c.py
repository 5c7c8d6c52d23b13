"""The trace of a caller that a request belongs to.

Source: W3C "Trace Context", headers ``traceparent`` and ``tracestate``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MAX_STATE: Final = 512
"""The most characters of a ``tracestate``; a longer state is left out, which the standard allows."""

# Version ff is invalid. A later version than 00 may have more fields behind the flags, 00 may not.
_PARENT: Final = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The caller's span.

    Attributes:
        trace_id, span_id: never 0.
        flags: 1 when the caller records its own part.
        state: vendor data of other tracing systems, "" without any.
    """

    trace_id: int
    span_id: int
    flags: int
    state: str = ""


def read_parent(headers: Mapping[str, str]) -> TraceParent | None:
    """The caller's span from headers with lower-case names; None without a valid one."""
    found = _PARENT.fullmatch(headers.get(TRACEPARENT, "")[:256])
    if found is None or (found[1] == "00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    # The standard calls ids of zeros alone invalid.
    if not (trace_id and span_id):
        return None
    state = headers.get(TRACESTATE, "")
    return TraceParent(trace_id, span_id, int(found[4], 16), state if len(state) <= MAX_STATE else "")


def context_text(trace_id: int, span_id: int, state: str = "") -> dict[str, str]:
    """The headers with which another service continues a trace that is recorded."""
    headers = {TRACEPARENT: f"00-{trace_id:032x}-{span_id:016x}-01"}
    return headers | {TRACESTATE: state} if state else headers

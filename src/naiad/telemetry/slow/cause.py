"""Why a request was slow: one cause, the one that explains most of its time. Pure: the evidence comes in.

What stops the process is looked for first, since it makes every stage look slow; then the longest stage decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from naiad.telemetry.slow.evidence import Evidence, Incident, covered

_TURN_NS: Final = 30_000_000
"""A request that was read so soon after a stop may have waited for the stop to end."""


class Cause(StrEnum):
    """Why a request was slow."""

    CLIENT_NOT_READING = "client_not_reading"
    COLLECTION = "collection"
    PAGE_FAULTS = "page_faults"
    LOAD = "load"
    INTERPRETER_HELD = "interpreter_held"
    LOOP_LATE = "loop_late"
    MACHINE_BUSY = "machine_busy"
    WAITING_FOR_BATCH = "waiting_for_batch"
    QUEUE = "queue"
    INSTANCE_BUSY = "instance_busy"
    NO_INSTANCE = "no_instance"
    INPUTS = "inputs"
    MODEL = "model"
    OUTPUTS = "outputs"


EXPLAINED: Final = {
    Cause.CLIENT_NOT_READING: "the caller did not take the responses, so the model was paused",
    Cause.COLLECTION: "Python's garbage collector stopped the server",
    Cause.PAGE_FAULTS: "memory was touched for the first time, or read back from a disk",
    Cause.LOAD: "a model was being loaded or unloaded meanwhile",
    Cause.INTERPRETER_HELD: "another thread of the server held the interpreter",
    Cause.LOOP_LATE: "the event loop was busy with something else, or blocked",
    Cause.MACHINE_BUSY: "other processes had the processors",
    Cause.WAITING_FOR_BATCH: "it waited for others to join its batch (max_queue_delay_microseconds)",
    Cause.QUEUE: "other requests were ahead of it",
    Cause.INSTANCE_BUSY: "every instance was busy with one long run",
    Cause.NO_INSTANCE: "no instance could take it: a rate limit, or a worker that was restarted",
    Cause.INPUTS: "its inputs took long to gather",
    Cause.MODEL: "the model ran for so long",
    Cause.OUTPUTS: "its outputs took long",
}


@dataclass(frozen=True, slots=True)
class Course:
    """The times of one request, monotonic ns; ``paused_ns`` is how long its caller took no responses."""

    received_ns: int
    queued_ns: int
    start_ns: int
    input_ns: int
    infer_ns: int
    end_ns: int
    responded_ns: int
    paused_ns: int = 0


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of the model around a request: when each began and ended, by how many instances."""

    spans: Sequence[tuple[int, int]]
    instances: int

    def busy_ns(self, begin_ns: int, end_ns: int) -> int:
        """How long no instance was idle within a time, about."""
        if self.instances == 1:
            return covered(self.spans, begin_ns, end_ns)
        together = sum(covered([span], begin_ns, end_ns) for span in self.spans)
        return min(end_ns - begin_ns, together // max(1, self.instances))

    def begun(self, begin_ns: int, end_ns: int) -> int:
        """How many runs began within a time."""
        return sum(begin_ns <= begin < end_ns for begin, _ in self.spans)


def begin_of(course: Course, evidence: Evidence) -> int:
    """When the request began to wait: before it was read, if the server stood still then."""
    stop = evidence.stop_before(course.received_ns, _TURN_NS)
    return course.received_ns if stop is None else stop.begin_ns


def cause_of(course: Course, runs: Runs, evidence: Evidence, delay_ns: int = 0) -> tuple[Cause, str]:
    """The cause, and the place in the code where that is known.

    Args:
        delay_ns: how long its batch waits for others, where it left when that was over or a size was reached; 0 where
            it left as soon as it could.
    """
    begin, end = begin_of(course, evidence), course.responded_ns
    total = max(1, end - begin)
    if course.paused_ns * 2 >= total:
        return Cause.CLIENT_NOT_READING, ""
    found = _stop(begin, end, total, course, evidence, delay_ns)
    if found is not None:
        return found
    before = _stop_before(begin, end, course, evidence)
    if before is not None:
        return before
    stages = {
        Cause.QUEUE: course.start_ns - course.queued_ns,
        Cause.INPUTS: course.input_ns - course.start_ns,
        Cause.MODEL: course.infer_ns - course.input_ns,
        Cause.OUTPUTS: course.responded_ns - course.infer_ns,
    }
    longest = max(stages, key=lambda stage: stages[stage])
    if longest is Cause.QUEUE:
        wait = _wait(course, runs, bool(delay_ns))
        # Nothing that it waited for is known, and a load had most of the time: instances start slowly beside one.
        is_beside_load = wait is Cause.NO_INSTANCE and not _is_beside_no_load(begin, end, total, evidence)
        return Cause.LOAD if is_beside_load else wait, ""
    return longest, ""


def _stop(
    begin: int, end: int, total: int, course: Course, evidence: Evidence, delay_ns: int
) -> tuple[Cause, str] | None:
    if evidence.stopped_ns(Incident.COLLECTION, begin, end) * 2 >= total:
        return Cause.COLLECTION, ""
    if evidence.faulting_ns(begin, end) * 2 >= total and _is_beside_no_load(begin, end, total, evidence):
        return Cause.PAGE_FAULTS, ""
    # The loop alone stood still in these: that costs a request nothing while its model runs, in a thread of its own, or
    # while its batch waits for others anyway.
    for_loop = ((begin, course.queued_ns), (course.queued_ns + delay_ns, course.start_ns), (course.infer_ns, end))
    stops = {
        kind: sum(evidence.stopped_ns(kind, *part) for part in for_loop if part[0] < part[1])
        for kind in (Incident.LOOP_LATE, Incident.MACHINE_BUSY)
    }
    stops[Incident.INTERPRETER_HELD] = evidence.stopped_ns(Incident.INTERPRETER_HELD, begin, end)
    if sum(stops.values()) * 2 < total:
        return None
    worst = max(stops, key=lambda kind: stops[kind])
    if evidence.loading_ns(begin, end) * 2 >= total:
        return Cause.LOAD, evidence.place_of(worst, begin, end)
    return Cause(worst), evidence.place_of(worst, begin, end)


def _stop_before(begin: int, end: int, course: Course, evidence: Evidence) -> tuple[Cause, str] | None:
    """The stop after which the request was read, where the time until then is the most of it."""
    stop = evidence.stop_before(course.received_ns, _TURN_NS)
    if stop is None or (course.received_ns - begin) * 2 < end - begin:
        return None
    is_beside_load = not _is_beside_no_load(begin, end, end - begin, evidence)
    return (Cause.LOAD if is_beside_load else Cause(stop.kind)), stop.place


def _is_beside_no_load(begin: int, end: int, total: int, evidence: Evidence) -> bool:
    return evidence.loading_ns(begin, end) * 2 < total


def _wait(course: Course, runs: Runs, waits_for_batch: bool) -> Cause:
    begin, end = course.queued_ns, course.start_ns
    if runs.busy_ns(begin, end) * 2 < end - begin:
        return Cause.WAITING_FOR_BATCH if waits_for_batch else Cause.NO_INSTANCE
    # The run that it waited for had begun before it came; with others in between it stood in a queue.
    return Cause.QUEUE if runs.begun(begin, end) > runs.instances else Cause.INSTANCE_BUSY

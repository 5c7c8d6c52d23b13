"""The cause of a slow request, from its times and what happened in the process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from naiad.telemetry.slow.cause import EXPLAINED, Cause, Course, Runs, begin_of, cause_of
from naiad.telemetry.slow.evidence import Evidence, Incident, ProcessSample, Stall, covered

MS = 1_000_000
# 100 ms from 1 s on, of which the model has 4.
QUICK = Course(1000 * MS, 1000 * MS, 1001 * MS, 1001 * MS, 1005 * MS, 1005 * MS, 1006 * MS)
QUEUED = replace(
    QUICK, start_ns=1095 * MS, input_ns=1095 * MS, infer_ns=1099 * MS, end_ns=1099 * MS, responded_ns=1100 * MS
)
NONE = Runs((), 1)


def samples(
    faults: int = 0,
    kernel_ms: int = 0,
    cpu_ms: int = 20,
    is_loading: bool = False,
    fresh_bytes: int = 0,
) -> list[ProcessSample]:
    """Samples of 20 ms around the second, with the same in each."""
    found = []
    for n in range(12):
        counters = n * faults, 0, n * kernel_ms * MS, n * cpu_ms * MS
        found.append(ProcessSample((950 + 20 * n) * MS, *counters, is_loading, n * fresh_bytes))
    return found


def evidence(*stalls: Stall, seen: list[ProcessSample] | None = None) -> Evidence:
    found = Evidence()
    found.stops.extend(stalls)
    found.samples.extend(seen or samples())
    return found


def cause(course: Course, runs: Runs = NONE, seen: Evidence | None = None, delay_ms: int = 0) -> Cause:
    return cause_of(course, runs, seen or evidence(), delay_ms * MS)[0]


def test_every_cause_is_explained() -> None:
    assert set(EXPLAINED) == set(Cause)


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        (
            replace(QUICK, input_ns=1080 * MS, infer_ns=1085 * MS, end_ns=1085 * MS, responded_ns=1086 * MS),
            Cause.INPUTS,
        ),
        (replace(QUICK, infer_ns=1090 * MS, end_ns=1090 * MS, responded_ns=1091 * MS), Cause.MODEL),
        (replace(QUICK, end_ns=1090 * MS, responded_ns=1091 * MS), Cause.OUTPUTS),
        (replace(QUICK, responded_ns=1100 * MS, paused_ns=60 * MS), Cause.CLIENT_NOT_READING),
    ],
)
def test_the_longest_stage_is_the_cause(course: Course, expected: Cause) -> None:
    assert cause(course) is expected


def test_a_wait_with_busy_instances_is_a_queue_or_one_long_run() -> None:
    before = (900 * MS, 1094 * MS)
    assert cause(QUEUED, Runs([before], 1)) is Cause.INSTANCE_BUSY
    several = [(900 * MS, 1030 * MS), (1030 * MS, 1060 * MS), (1060 * MS, 1094 * MS)]
    assert cause(QUEUED, Runs(several, 1)) is Cause.QUEUE
    # Of two instances only one was busy.
    assert cause(QUEUED, Runs([before], 3)) is Cause.NO_INSTANCE


def test_a_wait_with_idle_instances_is_for_a_batch_or_for_an_instance() -> None:
    assert cause(QUEUED, delay_ms=90) is Cause.WAITING_FOR_BATCH
    assert cause(QUEUED) is Cause.NO_INSTANCE


@pytest.mark.parametrize("kind", list(Incident))
def test_what_stops_the_process_is_the_cause_of_what_stood_still(kind: Incident) -> None:
    stall = Stall(kind, 1010 * MS, 1090 * MS, "f (a.py:3)")
    found, place = cause_of(QUEUED, NONE, evidence(stall))
    assert found == kind.value
    assert place == ("" if kind is Incident.COLLECTION else "f (a.py:3)")
    assert cause(QUEUED, seen=evidence(stall._replace(end_ns=1040 * MS))) is Cause.NO_INSTANCE


@pytest.mark.parametrize("kind", [Incident.LOOP_LATE, Incident.MACHINE_BUSY])
def test_a_loop_that_stands_still_while_nothing_needs_it_is_not_the_cause(kind: Incident) -> None:
    stall = evidence(Stall(kind, 1010 * MS, 1090 * MS))
    slow_model = replace(QUICK, infer_ns=1090 * MS, end_ns=1090 * MS, responded_ns=1091 * MS)
    assert cause(slow_model, seen=stall) is Cause.MODEL
    assert cause(QUEUED, seen=stall, delay_ms=94) is Cause.WAITING_FOR_BATCH
    # A delay that was over long before is no excuse.
    assert cause(QUEUED, seen=stall, delay_ms=10) == kind.value


def test_a_load_explains_a_wait_that_nothing_else_explains() -> None:
    beside = evidence(seen=samples(is_loading=True))
    assert cause(QUEUED, seen=beside) is Cause.LOAD
    assert cause(QUEUED, seen=beside, delay_ms=94) is Cause.WAITING_FOR_BATCH
    assert cause(QUEUED, Runs([(900 * MS, 1094 * MS)], 1), beside) is Cause.INSTANCE_BUSY


def test_a_request_that_was_read_after_a_stall_waited_for_its_end() -> None:
    stall = Stall(Incident.LOOP_LATE, 900 * MS, 999 * MS)
    seen = evidence(stall)
    assert begin_of(QUICK, seen) == 900 * MS
    assert cause(QUICK, seen=seen) is Cause.LOOP_LATE
    # Also where the next turn came late: it was not read before.
    late = evidence(stall._replace(begin_ns=965 * MS, end_ns=975 * MS))
    slow_model = replace(QUICK, infer_ns=1030 * MS, end_ns=1030 * MS, responded_ns=1031 * MS)
    assert cause(slow_model, seen=late) is Cause.LOOP_LATE
    assert begin_of(QUICK, evidence(stall._replace(begin_ns=800 * MS, end_ns=900 * MS))) == QUICK.received_ns


def test_a_load_is_the_cause_when_it_is_beside_a_stall() -> None:
    stall = Stall(Incident.INTERPRETER_HELD, 1010 * MS, 1090 * MS)
    assert cause(QUEUED, seen=evidence(stall, seen=samples(is_loading=True))) is Cause.LOAD
    assert (
        cause(QUEUED, Runs([(900 * MS, 1094 * MS)], 1), evidence(seen=samples(is_loading=True))) is Cause.INSTANCE_BUSY
    )


def test_page_faults_are_the_cause_when_the_kernel_has_most_of_the_time() -> None:
    slow = replace(QUICK, infer_ns=1090 * MS, end_ns=1090 * MS, responded_ns=1091 * MS)
    assert cause(slow, seen=evidence(seen=samples(faults=5000, kernel_ms=15))) is Cause.PAGE_FAULTS
    # On a machine that is busy otherwise they have most of the little time that the process gets.
    assert cause(slow, seen=evidence(seen=samples(faults=900, kernel_ms=3, cpu_ms=4))) is Cause.PAGE_FAULTS
    # A huge page needs one fault, which may take milliseconds.
    assert cause(slow, seen=evidence(seen=samples(faults=1, kernel_ms=12, fresh_bytes=6 << 20))) is Cause.PAGE_FAULTS
    # The kernel's time without faults is that of other calls.
    assert cause(slow, seen=evidence(seen=samples(faults=3, kernel_ms=15))) is Cause.MODEL


def test_the_watcher_tells_how_long_the_interpreter_was_held() -> None:
    found = evidence()
    found.watcher_waits.extend([(900 * MS, 910 * MS), (990 * MS, 1030 * MS), (1050 * MS, 1200 * MS)])
    assert found.watcher_late_ns(1000 * MS, 1100 * MS) == (30 + 50) * MS


def test_covered_counts_each_part_once() -> None:
    assert covered([(0, 10), (5, 20), (30, 40), (50, 60)], 2, 55) == 18 + 10 + 5
    assert covered([], 0, 9) == 0

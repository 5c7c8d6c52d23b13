"""What counts of what a process says about the readiness of its model."""

from __future__ import annotations

import pytest

from naiad.execution.worker.readiness import LIMIT_S, WorkerReadiness

NO = {"ready": False, "error": "busy"}
YES = {"ready": True}


@pytest.mark.parametrize("has_ready_check", [False, True])
@pytest.mark.parametrize("number", [0, 1, 7])
def test_an_answer_without_a_question_does_not_count(has_ready_check: bool, number: int) -> None:
    readiness = WorkerReadiness("m", has_ready_check)
    readiness.take(number, NO)
    assert readiness.problem == ""


def test_answers_count_once_and_in_order() -> None:
    readiness = WorkerReadiness("m", True)
    for now in (1.0, 2.0, 3.0):
        assert readiness.beat(now)
    # A check that is under way leaves later questions unanswered.
    readiness.take(2, NO)
    assert "not ready" in readiness.problem
    for number in (1, 2, 4):
        readiness.take(number, YES)
        assert "not ready" in readiness.problem
    readiness.take(3, YES)
    assert readiness.problem == ""


def test_an_unasked_answer_does_not_hide_silence() -> None:
    readiness = WorkerReadiness("m", True)
    readiness.beat(1.0)
    readiness.take(9, YES)
    readiness.beat(1.1 + LIMIT_S)
    assert "not ready" in readiness.problem

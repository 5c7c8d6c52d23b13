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
    before = readiness.problem
    readiness.take(number, YES if has_ready_check else NO)
    assert readiness.problem == before
    assert bool(before) is has_ready_check


def test_answers_count_once_and_in_order() -> None:
    answers: list[str] = []
    readiness = WorkerReadiness("m", True, lambda: answers.append(readiness.problem))
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
    # Of the first one only.
    assert len(answers) == 1 and "not ready" in answers[0]


def test_an_unasked_answer_does_not_hide_silence() -> None:
    answers: list[str] = []
    readiness = WorkerReadiness("m", True, lambda: answers.append(readiness.problem))
    readiness.beat(1.0)
    readiness.take(9, YES)
    assert not answers
    readiness.beat(1.1 + LIMIT_S)
    assert "not ready" in readiness.problem
    assert len(answers) == 1

"""How much the server holds at a time: what has room, what is refused, and what is said about it."""

from __future__ import annotations

import logging

import pytest

from naiad.errors import QueueFullError, TooManyRequestsError
from naiad.scheduling.admission import RequestBudget


def refused(budget: RequestBudget, size: int = 1, unanswered: int = 0) -> str:
    error = budget.refusal(size, "m", unanswered)
    assert error is not None
    return str(error)


def test_each_bound_refuses_and_says_which_it_is() -> None:
    budget = RequestBudget(max_requests=3, max_bytes=100, max_per_model=2)
    budget.check(100)
    budget.take(60)
    budget.check(40)
    text = refused(budget, 41)
    assert "this one of 41 bytes" in text
    assert "--max-in-flight-bytes" in text
    assert "--max-in-flight-requests-per-model" in refused(budget, unanswered=2)
    budget.take(0)
    budget.take(0)
    assert "3 unanswered requests" in refused(budget, 0)
    assert (budget.refused["requests"], budget.refused["bytes"], budget.refused["model"]) == (1, 1, 1)
    for size in (60, 0, 0):
        budget.release(size)
    assert (budget.requests, budget.bytes) == (0, 0)
    budget.check(1)


def test_a_request_larger_than_all_is_taken_when_it_is_alone() -> None:
    budget = RequestBudget(max_bytes=100)
    budget.check(1000)
    budget.take(1000)
    refused(budget, 0)


@pytest.mark.parametrize(("kind", "status", "code"), [(QueueFullError, 503, 14), (TooManyRequestsError, 429, 8)])
def test_the_errors_are_of_the_kind_that_was_asked_for(kind: type[QueueFullError], status: int, code: int) -> None:
    budget = RequestBudget(max_requests=0, refusal=kind)
    with pytest.raises(QueueFullError) as caught:
        budget.check(0)
    error = caught.value
    assert (error.http_status, error.grpc_code, error.reason, error.retryable) == (status, code, "REJECTED", True)


def test_the_log_says_so_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    budget = RequestBudget(max_requests=0)
    with caplog.at_level(logging.WARNING, "naiad"):
        for _ in range(1000):
            refused(budget)
    assert len(caplog.records) == 1
    assert "requests are refused" in caplog.text

"""Which requests a child holds, by their numbers and by themselves."""

from __future__ import annotations

from naiad.execution.batching.batch import Batch
from naiad.execution.worker.in_flight import InFlightRequests
from support.loaded_models import Caller


def running(count: int) -> tuple[InFlightRequests, list[Caller]]:
    """A batch of so many requests, numbered from 11 on."""
    callers = [Caller(1.0) for _ in range(count)]
    found = InFlightRequests()
    found.begin(10, 11, Batch(list(callers)))
    return found, callers


def test_a_request_has_its_number_until_its_last_response() -> None:
    found, callers = running(3)
    assert [found.number_of(caller) for caller in callers] == [11, 12, 13]
    assert found.find(12, final=False) == (callers[1], found.batch)
    assert found.number_of(callers[1]) == 12
    assert found.find(12, final=True) == (callers[1], found.batch)
    assert [found.number_of(caller) for caller in callers] == [11, 0, 13]
    # What is left open when the batch is over keeps its number.
    found.end()
    assert [found.number_of(caller) for caller in callers] == [11, 0, 13]
    again = [Caller(1.0), callers[1]]
    found.begin(20, 21, Batch(list(again)))
    assert [found.number_of(caller) for caller in (*callers, *again)] == [11, 22, 13, 21, 22]
    found.complete(2)
    assert [found.number_of(caller) for caller in again] == [0, 0]
    assert found.number_of(Caller(1.0)) == 0


def test_nobody_waits_when_all_that_are_open_gave_up() -> None:
    found, callers = running(3)
    found.find(11, final=True)
    assert found.give_up(callers[0]) == 0
    assert found.give_up(callers[1]) == 12
    assert not found.nobody_waits
    assert found.give_up(callers[2]) == 13
    assert found.nobody_waits
    found.end()
    assert found.nobody_waits
    others = [Caller(1.0)]
    found.begin(20, 21, Batch(list(others)))
    assert not found.nobody_waits
    assert found.give_up(others[0]) == 21
    assert found.nobody_waits
    assert found.was_given_up(12)
    assert not found.was_given_up(12)


def test_who_waits_for_the_last_request_is_called_back_once() -> None:
    found, _ = running(2)
    calls: list[bool] = []
    found.when_empty(lambda: calls.append(found.is_empty))
    found.find(11, final=True)
    # The batch is over, and leaves one request open.
    found.end()
    found.begin(20, 21, Batch([Caller(1.0)]))
    assert found.find(12, final=True) is not None
    assert calls == []
    found.complete(1)
    assert calls == [True]
    found.begin(30, 31, Batch([Caller(1.0)]))
    found.complete(1)
    assert calls == [True]
    # At once when nothing is in flight.
    found.when_empty(lambda: calls.append(found.is_empty))
    assert calls == [True, True]


def test_who_waits_is_called_back_however_the_last_request_ends() -> None:
    found, _ = running(2)
    calls: list[str] = []
    found.when_empty(lambda: calls.append("cleared"))
    assert len(found.clear()) == 2
    found.begin_whole(20, Batch([Caller(1.0)]))
    found.when_empty(lambda: calls.append("whole"))
    found.end_whole()
    found.begin(30, 31, Batch([Caller(1.0)]))
    found.end()
    found.when_empty(lambda: calls.append("left"))
    assert found.find(31, final=False) is not None
    assert calls == ["cleared", "whole"]
    assert found.find(31, final=True) is not None
    assert calls == ["cleared", "whole", "left"]


def test_the_ids_of_the_requests_that_are_open() -> None:
    found, callers = running(3)
    for caller, name in zip(callers, ("a", "", "c"), strict=True):
        caller.id = name
    found.find(11, final=True)
    found.end()
    later = Caller(1.0)
    later.id = "d"
    found.begin(20, 21, Batch([later]))
    assert found.open_ids(16) == ["d", "", "c"]
    assert found.open_ids(2) == ["d", ""]

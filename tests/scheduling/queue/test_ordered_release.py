"""``preserve_ordering``: whatever order work finishes in, answers leave in the order of arrival."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from naiad.scheduling.queue.ordered_release import OrderedRelease
from support.queued_requests import request


@given(st.permutations(range(8)))
def test_answers_leave_in_the_order_of_arrival(finished: list[int]) -> None:
    order = OrderedRelease()
    requests = [request() for _ in finished]
    left: list[int] = []
    for one in requests:
        order.add(one)
    for done, index in enumerate(finished, 1):
        order.release(requests[index], lambda index=index: left.append(index))
        assert left == sorted(left)
        assert set(range(len(left))) <= set(finished[:done])
    assert left == list(range(8))
    assert len(order) == 0


def test_who_asks_hears_when_an_answer_has_left() -> None:
    order = OrderedRelease()
    first, second = request(), request()
    heard: list[str] = []
    order.add(first)
    order.add(second)
    order.release(second, lambda: heard.append("second left"))
    assert order.when_sent(second, lambda: heard.append("told"))
    assert heard == []
    order.release(first, lambda: heard.append("first left"))
    assert heard == ["first left", "second left", "told"]
    assert not order.when_sent(first, lambda: heard.append("never")), "it has left before"

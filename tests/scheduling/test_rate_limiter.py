"""The rate limiter against the rules of the reference, case by case, and in any order of events.

Never more is in use than there is, and nobody waits for ever.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from naiad.errors import ModelLoadError
from naiad.scheduling.rate_limiter import GLOBAL, Contender, RateLimiter, Resource, ResourceLimit

R1 = Resource("R1", 0)
R2 = Resource("R2", 0)


def needs(n: int = 1, resource: Resource = R1, priority: int = 1) -> Contender:
    return Contender({resource: n}, priority)


def limiter(*members: Contender, limits: tuple[ResourceLimit, ...] = ()) -> RateLimiter:
    made = RateLimiter(limits)
    made.join(members)
    for member in members:
        made.enqueue(member)
    return made


def turns(made: RateLimiter, members: list[Contender], count: int) -> Counter[Contender]:
    """Who gets ``count`` turns, one after another, where all want all of them."""
    found: Counter[Contender] = Counter()
    for _ in range(count):
        given = made.next()
        assert given is not None
        found[given] += 1
        made.release(given)
        for member in members:
            made.enqueue(member)
    return found


# How much there is


def test_without_limits_there_is_as_much_as_one_instance_needs_at_most() -> None:
    made = limiter(needs(4), needs(10), needs(2))
    assert made.available == {R1: 10}


def test_what_an_instance_needed_is_no_more_when_it_left() -> None:
    large, small = needs(10), needs(2)
    made = limiter(large, small)
    made.leave(large)
    assert made.available == {R1: 2}


@pytest.mark.parametrize(
    ("limits", "resource", "expected"),
    [
        ((ResourceLimit("R1", 7),), R1, 7),
        ((ResourceLimit("r1", 7),), R1, 7),
        ((ResourceLimit("R1", 7, 0),), R1, 7),
        ((ResourceLimit("R1", 7, 0), ResourceLimit("R1", 9)), R1, 9),
        ((ResourceLimit("R1", 9, 0), ResourceLimit("R1", 7)), R1, 9),
        ((ResourceLimit("R1", 7, 1), ResourceLimit("R1", 5)), Resource("R1", 0), 5),
        # The device counts for nothing where all devices share a resource.
        ((ResourceLimit("R1", 7, 3),), Resource("R1", GLOBAL), 7),
        ((ResourceLimit("R1", 7, 3), ResourceLimit("R1", 8)), Resource("R1", GLOBAL), 8),
    ],
)
def test_limits_say_how_much_there_is(limits: tuple[ResourceLimit, ...], resource: Resource, expected: int) -> None:
    assert limiter(needs(5, resource), limits=limits).available == {resource: expected}


@pytest.mark.parametrize(
    ("limits", "found"),
    [((ResourceLimit("R1", 3),), 3), ((ResourceLimit("R1", 9, 1),), 0), ((ResourceLimit("R2", 9),), 0)],
)
def test_an_instance_that_could_never_run_is_refused(limits: tuple[ResourceLimit, ...], found: int) -> None:
    made = RateLimiter(limits)
    with pytest.raises(ModelLoadError) as error:
        made.join([needs(4)])
    assert str(error.value) == (
        f'Resource count for "R1" is limited to {found} which will prevent scheduling of one or more model instances, '
        "the minimum required count is 4"
    )
    assert made.available == {}


def test_a_resource_is_global_for_all_or_for_none() -> None:
    made = limiter(needs(4))
    with pytest.raises(ModelLoadError) as error:
        made.join([needs(1, Resource("R1", GLOBAL))])
    assert str(error.value) == (
        'Resource "R1" is present as both global and device-specific resource in the model configuration.'
    )
    assert made.available == {R1: 4}
    made.join([needs(8, Resource("R1", 1))])
    assert made.available == {R1: 4, Resource("R1", 1): 8}


# Whose turn it is


def test_an_instance_runs_with_all_its_resources_or_waits() -> None:
    first, second = Contender({R1: 1, R2: 1}), Contender({R2: 1})
    made = limiter(first, second)
    assert made.next() is first
    assert made.used == {R1: 1, R2: 1}
    assert made.next() is None
    assert second.is_waiting
    made.release(first)
    assert made.next() is second
    assert made.used == {R2: 1}


def test_instances_without_resources_never_wait() -> None:
    free, bound, other = Contender({}), needs(), needs()
    made = limiter(bound, other, free)
    assert [made.next(), made.next(), made.next()] == [bound, free, None]


def test_each_device_has_its_own_and_all_share_what_is_global() -> None:
    here, there = needs(1, Resource("R1", 0)), needs(1, Resource("R1", 1))
    made = limiter(here, there)
    assert [made.next(), made.next()] == [here, there]
    shared = [needs(1, Resource("G", GLOBAL)) for _ in range(2)]
    made = limiter(*shared)
    assert [made.next(), made.next()] == [shared[0], None]


@pytest.mark.parametrize(("priority", "expected"), [(1, (300, 300)), (2, (400, 200)), (5, (500, 100))])
def test_turns_are_shared_by_priority(priority: int, expected: tuple[int, int]) -> None:
    first, second = needs(), needs(priority=priority)
    found = turns(limiter(first, second), [first, second], 600)
    assert (found[first], found[second]) == expected


def test_whoever_has_the_smaller_priority_comes_first_from_the_beginning() -> None:
    """Not only in the long run: of the first n turns, a half with priority 2 never has more than a third."""
    half, full = needs(priority=2), needs()
    made = limiter(half, full)
    given = 0
    for count in range(1, 100):
        given += turns(made, [half, full], 1)[half]
        assert 0 <= count - 3 * given < 3


def test_whoever_comes_late_is_not_owed_the_turns_before() -> None:
    old, late = needs(), needs()
    made = limiter(old)
    turns(made, [old], 1000)
    made.join([late])
    made.enqueue(late)
    found = turns(made, [old, late], 100)
    assert abs(found[old] - found[late]) <= 1


def test_whoever_waits_for_much_is_not_passed_by_those_that_need_little() -> None:
    large, *small = needs(4), needs(), needs(), needs()
    made = limiter(small[0])
    made.join([large, *small[1:]])
    assert made.next() is small[0]
    made.enqueue(large)
    made.enqueue(small[1])
    # There would be room for it, but then there might never be for the large one.
    assert made.next() is None
    made.release(small[0])
    assert made.next() is large


def test_whoever_waits_keeps_nothing_from_those_that_need_something_else() -> None:
    first, waits, other = needs(), needs(), needs(1, R2)
    made = limiter(first, waits, other)
    assert [made.next(), made.next(), made.next()] == [first, other, None]


def test_a_turn_that_was_not_used_does_not_count() -> None:
    first, second = needs(), needs()
    made = limiter(first, second)
    given = made.next()
    assert given is first
    made.release(first, was_used=False)
    made.enqueue(first)
    # Those with the same score come in the order in which they asked.
    assert made.next() is second


def test_what_ended_leaves_nothing_behind() -> None:
    runs, waits = needs(), needs()
    made = limiter(runs, waits)
    made.next()
    made.leave(runs)
    assert made.used == {}
    assert made.next() is waits
    made.leave(waits)
    made.leave(waits)
    assert (made.used, made.available, made.next()) == ({}, {}, None)


def test_asking_and_giving_back_twice_is_once() -> None:
    one = needs()
    made = limiter(one)
    made.enqueue(one)
    assert made.next() is one
    made.enqueue(one)
    assert made.next() is None
    made.release(one)
    made.release(one)
    assert made.used == {}


def test_who_is_no_member_gets_no_turn() -> None:
    stranger = needs()
    made = limiter(needs())
    made.enqueue(stranger)
    assert made.next() is not stranger
    assert made.next() is None


# Any order of events

RESOURCES = [Resource("A", 0), Resource("A", 1), Resource("B", 0), Resource("G", GLOBAL)]
NEEDS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 5), max_size=3)


class Events(RuleBasedStateMachine):
    """Instances come, ask, run, finish and die in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.limiter = RateLimiter()
        self.members: list[Contender] = []

    def some(self, data: st.DataObject) -> Contender:
        return data.draw(st.sampled_from(self.members))

    @rule(needs=NEEDS, priority=st.integers(1, 4))
    def come(self, needs: dict[Resource, int], priority: int) -> None:
        made = Contender(needs, priority)
        self.limiter.join([made])
        self.members.append(made)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        self.limiter.enqueue(self.some(data))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.limiter.withdraw(self.some(data))

    @rule()
    def run(self) -> None:
        free = {r: self.limiter.available[r] - self.limiter.used.get(r, 0) for r in self.limiter.available}
        given = self.limiter.next()
        if given is not None:
            assert all(n <= free[r] for r, n in given.needs)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), was_used=st.booleans())
    def finish(self, data: st.DataObject, was_used: bool) -> None:
        self.limiter.release(self.some(data), was_used)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        gone = self.some(data)
        self.limiter.leave(gone)
        self.members.remove(gone)

    @invariant()
    def what_runs_is_what_is_used(self) -> None:
        used: Counter[Resource] = Counter()
        for member in self.members:
            if member.is_running:
                used.update(dict(member.needs))
        assert self.limiter.used == {r: n for r, n in used.items() if n}

    @invariant()
    def nothing_is_needed_of_which_there_is_not_enough(self) -> None:
        for member in self.members:
            assert all(n <= self.limiter.available[r] for r, n in member.needs)

    def teardown(self) -> None:
        """However it stood, everyone who waits gets its turn, and in the end nothing is left."""
        for member in self.members:
            self.limiter.release(member)
            self.limiter.enqueue(member)
        waiting, given = set(self.members), 0
        while waiting:
            one = self.limiter.next()
            assert one is not None
            waiting.discard(one)
            self.limiter.release(one)
            self.limiter.enqueue(one)
            given += 1
            assert given <= 100 * (len(self.members) + 1) ** 2
        for member in self.members:
            self.limiter.leave(member)
        assert self.limiter.used == {}
        assert self.limiter.available == {}


TestEvents = Events.TestCase
TestEvents.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

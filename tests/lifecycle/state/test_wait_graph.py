"""What waits for what: edges, cycles, and the waits that changes end."""

from __future__ import annotations

import asyncio

import pytest

from lifecycle.state.test_operations import settle
from naiad.errors import InvalidArgumentError, ModelLoadError
from naiad.lifecycle.ensembles.member_lease import MemberLeases
from naiad.lifecycle.memory.waiting_line import WaitingLine
from naiad.lifecycle.state.operations import Operation, Operations
from naiad.lifecycle.state.wait_graph import OperationsOn, Residence, WaitCycleError, WaitGraph
from support.event_loops import run

WAIT_S = 10.0


def test_a_cycle_is_found_when_its_last_edge_is_added() -> None:
    graph = WaitGraph()
    with graph.waiting("a", "b"), graph.waiting("b", "c"):
        for awaited in "ab":
            with pytest.raises(WaitCycleError), graph.waiting("c", awaited):
                pass
        assert graph.reaches("a", "c")
        assert not graph.reaches("c", "a")
    with graph.waiting("c", "a"):
        assert not graph.reaches("a", "c")


def test_an_edge_is_there_until_each_who_added_it_has_removed_it() -> None:
    graph = WaitGraph()
    with graph.noting(Residence("m"), "load"):
        with graph.noting(Residence("m"), "load"):
            assert graph.residences() == {"m"}
        assert list(graph.waiters_of("load")) == [Residence("m")]
    assert graph.residences() == set()
    assert not list(graph.waiters_of("load"))
    assert not list(graph.awaited_by(Residence("m")))


def test_a_model_stays_apart_from_the_operations_on_it() -> None:
    graph = WaitGraph()
    with graph.noting(Residence("m"), OperationsOn("n")):
        assert not graph.reaches(OperationsOn("m"), OperationsOn("n"))


def test_a_change_wakes_all_and_a_wait_for_one_is_bounded() -> None:
    async def test() -> None:
        graph = WaitGraph()
        await asyncio.wait_for(graph.change(0.01), WAIT_S)
        waits = await settle(graph.change(), graph.change())
        assert not any(wait.done() for wait in waits)
        graph.add("a", "b")
        await asyncio.wait_for(asyncio.gather(*waits), WAIT_S)
        (late,) = await settle(graph.change())
        # The same edge once more is no change.
        graph.add("a", "b")
        graph.remove("a", "b")
        await settle()
        assert not late.done()
        graph.remove("a", "b")
        await asyncio.wait_for(late, WAIT_S)

    run(test())


async def stand(line: WaitingLine, operation: Operation, until: asyncio.Event, order: list[str], passes: bool) -> None:
    async with line.turn(operation, lambda: passes):
        order.append(operation.name)
        await until.wait()


def test_the_line_keeps_its_order_and_lets_those_pass_that_may() -> None:
    async def test() -> None:
        graph, go, order = WaitGraph(), asyncio.Event(), list[str]()
        line = WaitingLine(graph)
        first, second, third = (Operation(name) for name in ("first", "second", "third"))
        tasks = await settle(*(stand(line, one, go, order, passes=one is third) for one in (first, second, third)))
        assert order == ["first", "third"]
        assert graph.reaches(second, first)
        assert not graph.reaches(third, first)
        assert not graph.reaches(second, third)
        go.set()
        await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)
        assert order == ["first", "third", "second"]
        assert not list(graph.awaited_by(line))

    run(test())


def test_one_that_is_not_wanted_any_more_leaves_the_line() -> None:
    async def test() -> None:
        operations, go = Operations(), asyncio.Event()
        line = WaitingLine(operations.graph)
        first, second = Operation("first"), Operation("second")
        ahead, behind = await settle(*(stand(line, one, go, [], passes=False) for one in (first, second)))
        second.not_wanted = "it is to be unloaded"
        operations.graph.notify()
        with pytest.raises(ModelLoadError, match="it is to be unloaded"):
            await asyncio.wait_for(behind, WAIT_S)
        go.set()
        await asyncio.wait_for(ahead, WAIT_S)
        assert not operations.graph.reaches(second, first)

    run(test())


def test_ensembles_take_turns_but_for_those_that_the_running_load_waits_for() -> None:
    async def test() -> None:
        operations, go, begun = Operations(), asyncio.Event(), list[str]()
        leases = MemberLeases(in_turn=True, within=lambda name: (), graph=operations.graph)

        async def load(name: str, *members: str) -> None:
            async with operations.turn(name) as operation, leases.holding(operation, members):
                begun.append(name)
                await go.wait()

        tasks = await settle(load("outer", "inner", "a"), load("other", "b"), load("inner", "c"))
        assert begun == ["outer", "inner"]
        assert leases.holds("c")
        assert not leases.holds("b")
        assert operations.is_awaited("a")
        graph = operations.graph
        assert graph.reaches(Residence("a"), OperationsOn("inner"))
        assert graph.reaches(OperationsOn("other"), OperationsOn("a"))
        assert not graph.reaches(OperationsOn("outer"), OperationsOn("other"))
        leases.extend("inner", ["d"])
        assert graph.reaches(Residence("d"), OperationsOn("a"))
        go.set()
        await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)
        assert begun == ["outer", "inner", "other"]
        assert graph.residences() == set()

    run(test())


def test_a_load_that_an_ensemble_in_line_would_wait_for_is_refused() -> None:
    """The loading member of one ensemble requests another one, which waits for the turn of the first."""

    async def test() -> None:
        operations, go = Operations(), asyncio.Event()
        leases = MemberLeases(in_turn=True, within=lambda name: (), graph=operations.graph)

        async def load(name: str, member: str) -> None:
            async with operations.turn(name) as operation, leases.holding(operation, [member]):
                await go.wait()

        tasks = await settle(load("one", "m"), load("two", "n"))
        async with operations.turn("m") as member:
            with pytest.raises(InvalidArgumentError, match="'m' waits for 'two', which waits for 'm'"):
                async with operations.turn("two", member):
                    pass
        go.set()
        await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)

    run(test())

"""The switches of the environment that let schedulers wait for full queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from naiad.config.spec import BatchingSpec
from naiad.scheduling.testing import BACKLOG_DELAY, DELAY
from support.event_loops import run, turns
from support.loaded_models import Caller as PlainCaller
from support.loaded_models import loaded as plain_loaded
from support.loaded_models import negate, spec
from support.noted_requests import submit
from support.sequence_models import Caller, Totals, loaded, model_spec, sequences

strategies = pytest.mark.parametrize("oldest", [False, True], ids=["direct", "oldest"])


@pytest.mark.parametrize("max_batch_bytes", [0, 1000], ids=["plain", "with a limit"])
def test_a_dynamic_batcher_waits_once_for_so_many_requests(
    monkeypatch: pytest.MonkeyPatch, max_batch_bytes: int
) -> None:
    monkeypatch.setenv(DELAY, "3")

    async def test() -> None:
        limited = replace(spec(batching=BatchingSpec((8,))), max_batch_bytes=max_batch_bytes)
        with plain_loaded(limited, negate) as model:
            first = [PlainCaller(1.0), PlainCaller(2.0)]
            for caller in first:
                model.submit(caller)
            await turns()
            assert model.statistics.pending == 2
            model.submit(PlainCaller(3.0))
            assert [await caller.answer() for caller in first] == [[-1.0], [-2.0]]
            assert model.statistics.execution_count == 1
            last = PlainCaller(4.0)
            model.submit(last)
            assert await last.answer() == [-4.0]

    run(test())


@strategies
def test_an_instance_waits_for_so_many_requests_of_its_sequences(monkeypatch: pytest.MonkeyPatch, oldest: bool) -> None:
    monkeypatch.setenv(DELAY, "4")

    async def test() -> None:
        totals = Totals()
        with loaded(model_spec(sequences(oldest=oldest)), totals) as model:
            callers = [Caller(1, 1.0, True), Caller(1, 2.0), Caller(2, 3.0, True)]
            submit(model, *callers)
            await turns()
            assert totals.batches == []
            callers.append(Caller(2, 4.0))
            submit(model, callers[-1])
            assert [await caller.answer() for caller in callers] == [1.0, 3.0, 3.0, 7.0]
            assert len(totals.batches) == 2

    run(test())


def test_the_requests_of_all_instances_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DELAY, "4")

    async def test() -> None:
        totals = Totals()
        with loaded(model_spec(sequences(slots=1), 1, 2), totals) as model:
            callers = [Caller(1, 1.0, True), Caller(2, 2.0, True), Caller(1, 3.0)]
            submit(model, *callers)
            await turns()
            assert totals.batches == []
            callers.append(Caller(2, 4.0))
            submit(model, callers[-1])
            assert [await caller.answer() for caller in callers] == [1.0, 2.0, 4.0, 6.0]

    run(test())


@strategies
def test_instances_wait_for_so_many_requests_without_a_slot(monkeypatch: pytest.MonkeyPatch, oldest: bool) -> None:
    monkeypatch.setenv(BACKLOG_DELAY, "2")

    async def test() -> None:
        with loaded(model_spec(sequences(oldest=oldest, slots=1), 1), Totals()) as model:
            callers = [Caller(1, 1.0, True, True), Caller(2, 2.0, True)]
            submit(model, *callers)
            await turns()
            assert model.statistics.pending == 2
            callers.append(Caller(2, 3.0, False, True))
            submit(model, callers[-1])
            assert [await caller.answer() for caller in callers] == [1.0, 2.0, 5.0]

    run(test())


@pytest.mark.parametrize("text", ["", "no", "-3", "9" * 30, "٣"])
def test_what_is_no_number_holds_nothing_back(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(DELAY, text)

    async def test() -> None:
        with loaded(model_spec(sequences()), Totals()) as model:
            caller = Caller(1, 1.0, True)
            submit(model, caller)
            assert await caller.answer() == 1.0

    run(test())

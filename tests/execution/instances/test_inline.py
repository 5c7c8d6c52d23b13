"""An instance on the loop itself keeps the promises of one in a thread."""

from __future__ import annotations

import asyncio
import logging
import threading

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays, Instance
from naiad.config.spec import BatchingSpec, InstanceGroupSpec
from naiad.errors import BackendError, InternalError, ModelLoadError
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.inline import InlineInstance
from naiad.execution.model.loaded_model import LoadedModel
from naiad.request import RequestOptions
from support.event_loops import run
from support.loaded_models import Caller, FunctionBackend, loaded, negate, spec

POISON = 666.0


class InlineBackend(FunctionBackend):
    """Its instances run on the loop."""

    @property
    def runs_inline(self) -> bool:
        return True


class Notes:
    """Negates, fails on poison, and notes the rows of each run and the thread it was in."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, inputs: Arrays, outputs: object) -> Arrays:
        self.rows.append(len(inputs["x"]))
        self.threads.add(threading.current_thread())
        if POISON in inputs["x"]:
            raise SystemExit("poisoned")
        return negate(inputs, ("y",))


def inline(notes: Notes) -> InlineBackend:
    return InlineBackend(lambda index: notes)


def test_requests_of_one_turn_run_together_on_the_loop() -> None:
    notes = Notes()

    async def test() -> None:
        with loaded(spec(batching=BatchingSpec((8,)), count=2), inline(notes)) as model:
            callers = [Caller(i) for i in range(8)]
            for caller in callers:
                model.submit(caller)
            assert notes.rows == [], "run before the loop turned"
            await asyncio.sleep(0)
            assert all(len(c.answers) == 1 for c in callers)
            assert [await c.answer() for c in callers] == [[-float(i)] for i in range(8)]
            assert (model.in_flight, model.statistics.pending, model.statistics.execution_count) == (0, 0, 1)

    run(test())
    assert notes.rows == [8]
    assert notes.threads == {threading.main_thread()}


def test_large_requests_are_not_put_together() -> None:
    notes = Notes()

    async def test() -> None:
        with loaded(spec(batching=BatchingSpec((8,))), inline(notes)) as model:
            callers = [Caller(i, options=RequestOptions(("y",), 1, "wide")) for i in range(3)]
            for i, caller in enumerate(callers):
                caller.inputs = {"x": np.full((1, 30_000), i, np.float32)}
                model.submit(caller)
            for i, caller in enumerate(callers):
                assert set(await caller.answer()) == {-float(i)}
            assert model.statistics.execution_count == 3

    run(test())
    assert notes.rows == [1, 1, 1]


def test_a_poisoned_request_fails_alone() -> None:
    notes = Notes()

    async def test() -> None:
        with loaded(spec(batching=BatchingSpec((8,))), inline(notes)) as model:
            callers = [Caller(POISON if i == 2 else i) for i in range(4)]
            for caller in callers:
                model.submit(caller)
            for i, caller in enumerate(callers):
                if i == 2:
                    with pytest.raises(BackendError, match="SystemExit: poisoned"):
                        await caller.answer()
                else:
                    assert await caller.answer() == [-float(i)]
            found = model.statistics
            assert (found.success.count, found.failure.count, found.execution_count) == (3, 1, 5)

    run(test())
    assert notes.rows == [4, 2, 2, 1, 1]


def test_a_request_made_while_one_is_answered_is_not_forgotten() -> None:
    class Chain(Caller):
        __slots__ = ("left", "model")

        def respond(self, outputs: object, error: object) -> None:
            super().respond(outputs, error)
            if self.left:
                following = Chain(self.left)
                following.left, following.model = self.left - 1, self.model
                chain.append(following)
                self.model.submit(following)

    chain: list[Chain] = []

    async def test() -> None:
        with loaded(spec(), inline(Notes())) as model:
            first = Chain(99)
            first.left, first.model = 50, model
            model.submit(first)
            await first.answer()
            while len(chain) < 50:
                await chain[-1].answer()
            assert [await c.answer() for c in chain] == [[-float(i)] for i in range(50, 0, -1)]

    run(test())


def test_a_failed_start_is_an_error_of_the_load() -> None:
    class Failing(InlineBackend):
        def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
            if index == 1:
                raise SystemExit("no memory")
            return super().create_instance(group, index)

    backend = Failing(lambda index: negate)

    async def test() -> None:
        model = LoadedModel(spec(count=2), 1, backend, asyncio.get_running_loop())
        with pytest.raises(ModelLoadError, match="instance 'm_1' failed to start: SystemExit: no memory"):
            model.start()

    run(test())
    assert [len(i.closed_in) for i in backend.instances] == [1]
    assert backend.closed == 1


def test_it_is_closed_once_and_a_failing_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[int] = []

    class Sticky(Instance):
        def execute(self, inputs: Arrays, outputs: object) -> Arrays:
            return {}

        def close(self) -> None:
            closed.append(1)
            raise RuntimeError("stuck")

    instance = InlineInstance("m_0", spec(), Sticky)
    instance.start()
    with caplog.at_level(logging.ERROR):
        instance.stop()
        instance.stop()
    assert instance.join(0)
    assert closed == [1]
    assert "instance 'm_0' failed to close" in caplog.text


def test_running_before_the_start_is_our_own_mistake() -> None:
    instance = InlineInstance("m_0", spec(), lambda: pytest.fail("created"))
    with pytest.raises(InternalError, match="not started"):
        instance.run(Batch([Caller(1)]))

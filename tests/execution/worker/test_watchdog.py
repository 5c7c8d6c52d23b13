"""How long a batch of a child may run, and how soon a child that ends again and again is started again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic, monotonic_ns

import pytest

from naiad.errors import ExecutionTimeoutError, UnavailableError
from naiad.execution.worker.watchdog import ExecutionWatchdog
from support.event_loops import run, until
from support.noted_requests import submit
from support.worker_models import Caller, process_of, serving, write_model

SLEEPS = """
def execute(self, requests):
    seconds = max(float(pb_utils.get_input_tensor_by_name(r, "x").as_numpy().max()) for r in requests)
    time.sleep(seconds)
    if seconds == 0.0625:
        os._exit(3)
    found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
    return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in found]
"""
LIMITED = {"execute-timeout-seconds": "0.5"}
BATCHING = "dynamic_batching { max_queue_delay_microseconds: 50000 }"


def test_only_a_batch_that_still_runs_is_late() -> None:
    """One timer watches all of them: it is set again for what is left of the running one."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        late = asyncio.Event()
        began_ns: int | None = None
        # None: the one that runs has begun just now, whenever somebody asks.
        overtime = ExecutionWatchdog(loop, 0.2, lambda: monotonic_ns() if began_ns is None else began_ns, late.set)
        overtime.watch()
        await asyncio.sleep(0.5)
        assert not late.is_set()
        began_ns = 0
        await asyncio.sleep(0.25)
        assert not late.is_set()
        began_ns = monotonic_ns()
        overtime.watch()
        await asyncio.wait_for(late.wait(), 10)
        assert monotonic_ns() - began_ns >= 0.2e9
        late.clear()
        overtime.watch()
        overtime.stop()
        await asyncio.sleep(0.25)
        assert not late.is_set()

    run(main())


@pytest.mark.slow
def test_all_requests_of_the_batch_are_told(tmp_path: Path) -> None:
    write_model(tmp_path, SLEEPS, BATCHING)

    async def main() -> None:
        async with serving(tmp_path, **LIMITED) as engine:
            model = engine.find("m", "")
            pid = process_of(model).pid
            callers = [Caller(60), Caller(0), Caller(0)]
            submit(model, *callers)
            waiting = Caller([0, 0])
            await until(lambda: model.statistics.pending == 0)
            submit(model, waiting)
            for caller in callers:
                error = await caller.error()
                assert isinstance(error, ExecutionTimeoutError)
                assert error.retryable
                assert "a batch ran for longer than 0.5 s (execute-timeout-seconds)" in str(error)
            # This one was not in the batch.
            await waiting.outputs()
            assert process_of(model).pid != pid

    run(main())


@pytest.mark.slow
def test_requests_beside_the_late_batch_are_told_why_their_process_ended(tmp_path: Path) -> None:
    """In decoupled mode a request may outlive its batch."""
    methods = """
    def execute(self, requests):
        self.kept = getattr(self, "kept", []) + [r.get_response_sender() for r in requests]
        if len(self.kept) == 2:
            time.sleep(60)
    """
    write_model(tmp_path, methods, "model_transaction_policy { decoupled: true }")

    async def main() -> None:
        async with serving(tmp_path, **LIMITED) as engine:
            model = engine.find("m", "")
            first, second = Caller(1), Caller(2)
            submit(model, first)
            await asyncio.sleep(0.7)
            assert not first.done.is_set()
            submit(model, second)
            found = []
            for caller in (first, second):
                await asyncio.wait_for(caller.done.wait(), 30)
                found.append(caller.parts[-1][1])
            assert [type(error) for error in found] == [UnavailableError, ExecutionTimeoutError]
            assert all("execute-timeout-seconds" in str(error) for error in found)

    run(main())


@pytest.mark.slow
def test_a_child_that_does_its_work_between_ends_is_back_soon(tmp_path: Path) -> None:
    write_model(tmp_path, SLEEPS)

    async def main() -> None:
        async with serving(tmp_path) as engine:
            model = engine.find("m", "")
            for _ in range(6):
                submit(model, good := Caller(0))
                await good.outputs()
                submit(model, bad := Caller(0.0625))
                assert isinstance(await bad.error(), UnavailableError)
                await until(lambda: engine.is_model_ready("m", ""))
            # Twice as long each time, it would be 6.4 s by now.
            (instance,) = model.instances
            assert instance.back_off.next_s <= 1.6

    run(main())


@pytest.mark.slow
def test_a_child_that_only_ends_is_back_later_and_later(tmp_path: Path) -> None:
    write_model(tmp_path, SLEEPS)

    async def main() -> None:
        async with serving(tmp_path) as engine:
            model = engine.find("m", "")
            (instance,) = model.instances
            pauses_s, begun = [], 0.0
            for _ in range(4):
                process_of(model).kill()
                begun = monotonic()
                await until(lambda: not engine.is_model_ready("m", ""))
                await until(lambda: engine.is_model_ready("m", ""))
                pauses_s.append(instance.back_off.next_s / 2)
            assert pauses_s == [0.1, 0.2, 0.4, 0.8]
            assert monotonic() - begun > 0.8

    run(main())

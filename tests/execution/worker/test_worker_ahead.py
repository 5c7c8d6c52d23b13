"""Without batching the next request waits in the only worker, which begins with it as soon as it can."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.errors import CancelledError, ExecutionTimeoutError, UnavailableError
from naiad.execution.batching.batch import Batch
from naiad.execution.worker.in_flight import InFlightRequests
from naiad.testing import wait_until
from support.event_loops import WAIT_S, until
from support.noted_requests import submit
from support.worker_models import Caller, mapped_segments, play

NOTES = """
def initialize(self, args):
    self.folder = {folder!r}

def execute(self, requests):
    found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
    value = int(found[0].max())
    open(self.folder + f"/begun-{{value}}-{{len(requests)}}", "w").close()
    if value == 66:
        os._exit(3)
    while value == 77:
        time.sleep(0.01)
    while not os.path.exists(self.folder + "/go"):
        time.sleep(0.001)
    while value == 88 and not requests[0].is_cancelled():
        time.sleep(0.001)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in found]
"""


def play_notes(folder: Path, test: Any, how: str = "def", **settings: str) -> None:
    methods = NOTES.format(folder=str(folder)).replace("def execute", f"{how} execute")
    play(folder / "models", test, methods, **settings)


async def handed_over(model: Any, callers: list[Caller]) -> None:
    """Submit requests, and let the loop hand over what it leaves to its next turn when the first one took long."""
    submit(model, *callers)
    await asyncio.sleep(0)


@pytest.mark.parametrize(("size", "begun"), [(1, 4), (100_000, 2)], ids=["small", "large"])
def test_the_next_requests_begin_without_the_loop(tmp_path: Path, size: int, begun: int) -> None:
    """Of large ones, of which a worker holds copies, only one waits in it."""

    async def test(model: Any) -> None:
        callers = [Caller(np.full(size, n)) for n in (1, 2, 3, 4)]
        await handed_over(model, callers)
        await until((tmp_path / "begun-1-1").exists)
        assert model.statistics.pending == 3
        (tmp_path / "go").touch()
        # The loop does nothing meanwhile.
        wait_until((tmp_path / f"begun-{begun}-1").exists, WAIT_S, "the next requests begin")
        assert (tmp_path / "begun-3-1").exists() == (begun > 2)
        assert not any(caller.answers for caller in callers)
        for n, caller in enumerate(callers, 1):
            assert (await caller.outputs())["y"].tolist() == [[n] * size]
        assert model.in_flight == model.statistics.pending == 0
        assert model.instance_states == {"idle": 1, "busy": 0, "down": 0}

    play_notes(tmp_path, test)


def test_no_more_than_some_requests_wait_in_the_worker(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        most = model.instances[0].runs_ahead
        callers = [Caller(n) for n in range(1, most + 5)]
        await handed_over(model, callers)
        await until((tmp_path / "begun-1-1").exists)
        (tmp_path / "go").touch()
        wait_until((tmp_path / f"begun-{most + 1}-1").exists, WAIT_S, "the next requests begin")
        assert not (tmp_path / f"begun-{most + 2}-1").exists()
        assert model.statistics.pending == most + 3
        # Each is cancelled where it waits: in the worker, and in the queue.
        for caller in callers[most + 1 :]:
            model.cancel(caller)
        for caller in callers[: most + 1]:
            assert (await caller.outputs())["y"].tolist() == caller.inputs["x"].tolist()
        assert model.in_flight == model.statistics.pending == 0

    play_notes(tmp_path, test)


def test_a_request_behind_one_that_ends_the_worker_runs_in_the_next_worker(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        (tmp_path / "go").touch()
        callers = [Caller(n) for n in (66, 2, 3, 4)]
        submit(model, *callers)
        assert isinstance(await callers[0].error(), UnavailableError)
        for caller in callers[1:]:
            assert (await caller.outputs())["y"].tolist() == caller.inputs["x"].tolist()
        assert model.in_flight == model.statistics.pending == 0
        assert model.instance_states == {"idle": 1, "busy": 0, "down": 0}

    play_notes(tmp_path, test)


def test_a_request_behind_one_that_runs_too_long_is_not_ended_with_it(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        (tmp_path / "go").touch()
        callers = [Caller(77), Caller(2)]
        submit(model, *callers)
        assert isinstance(await callers[0].error(), ExecutionTimeoutError)
        assert (await callers[1].outputs())["y"].tolist() == [[2]]

    play_notes(tmp_path, test, **{"execute-timeout-seconds": "0.5"})


@pytest.mark.parametrize("how", ["def", "async def"])
@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "in_a_segment"])
def test_a_caller_that_leaves_while_its_request_waits_in_the_worker(tmp_path: Path, size: int, how: str) -> None:
    async def test(model: Any) -> None:
        callers = [Caller(np.full(size, n)) for n in (1, 2, 3, 4)]
        await handed_over(model, callers)
        await until((tmp_path / "begun-1-1").exists)
        for caller in callers[1:3]:
            model.cancel(caller)
            assert isinstance(await caller.error(), CancelledError)
        assert (model.in_flight, model.statistics.pending) == (2, 1)
        (tmp_path / "go").touch()
        assert (await callers[0].outputs())["y"].tolist() == [[1] * size]
        assert (await callers[3].outputs())["y"].tolist() == [[4] * size]
        assert not (tmp_path / "begun-2-1").exists()
        assert model.in_flight == model.statistics.pending == 0

    play_notes(tmp_path, test, how)


@pytest.mark.parametrize("how", ["def", "async def"])
def test_a_caller_that_leaves_just_as_its_request_begins(tmp_path: Path, how: str) -> None:
    async def test(model: Any) -> None:
        callers = [Caller(n) for n in (1, 88, 3)]
        await handed_over(model, callers)
        await until((tmp_path / "begun-1-1").exists)
        (tmp_path / "go").touch()
        # The loop does not hear of it, and takes the request for one that waits.
        wait_until((tmp_path / "begun-88-1").exists, WAIT_S, "the second request begins")
        model.cancel(callers[1])
        assert isinstance(await callers[1].error(), CancelledError)
        # The model is told, and ends.
        assert (await callers[2].outputs())["y"].tolist() == [[3]]
        assert model.in_flight == model.statistics.pending == 0

    play_notes(tmp_path, test, how)


def test_the_memory_of_what_a_worker_does_not_read_is_used_again(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        mapped = []
        for n in range(1, 21):
            (tmp_path / "go").unlink(missing_ok=True)
            callers = [Caller(np.full(100_000, 100 * n)), Caller(np.full(100_000, 1))]
            submit(model, *callers)
            await until((tmp_path / f"begun-{100 * n}-1").exists)
            model.cancel(callers[1])
            (tmp_path / "go").touch()
            await callers[0].outputs()
            mapped.append(mapped_segments())
        assert not (tmp_path / "begun-1-1").exists()
        # They come and go by a few; what is lost would add up.
        assert mapped[-1] <= mapped[3] + 4

    play_notes(tmp_path, test)


@pytest.mark.parametrize("more", ["dynamic_batching { }", "instance_group { count: 2 }"])
def test_requests_that_may_run_elsewhere_or_together_stay_in_the_queue(tmp_path: Path, more: str) -> None:
    async def test(model: Any) -> None:
        callers = [Caller(n) for n in range(1, 6)]
        submit(model, *callers[:2])
        await until(lambda: len(list(tmp_path.glob("begun-*"))) == len(model.instances))
        submit(model, *callers[2:])
        assert len(list(tmp_path.glob("begun-*"))) == len(model.instances)
        (tmp_path / "go").touch()
        for caller in callers:
            await caller.outputs()
        sizes = [int(path.name.rpartition("-")[2]) for path in tmp_path.glob("begun-*")]
        assert max(sizes) >= 3 if len(model.instances) == 1 else set(sizes) == {1}

    play(tmp_path / "models", test, NOTES.format(folder=str(tmp_path)), more)


def test_the_batch_behind_the_running_one_has_its_own_numbers() -> None:
    found = InFlightRequests()
    first, second = [Caller(1), Caller(2)], [Caller(3)]
    found.begin(10, 11, Batch(list(first)))
    found.begin(13, 14, Batch(list(second)))
    assert (found.number, found.number_of(first[1]), found.number_of(second[0])) == (10, 12, 14)
    # Nothing can come for it before it has begun.
    assert found.find(14, final=True) is None
    assert found.open_ids(9) == ["", ""]
    assert found.give_up(second[0]) == 14
    found.complete(2)
    assert (found.number, found.number_of(first[1]), found.number_of(second[0])) == (13, 0, 14)
    assert not found.is_empty
    third, fourth = Batch([Caller(4)]), Batch([Caller(5)])
    found.begin(15, 16, third)
    found.begin(17, 18, fourth)
    assert (found.drop_next(fourth), found.drop_next(fourth)) == (17, 0)
    found.forget_next()
    assert found.drop_next(third) == 0
    found.end()
    assert found.find(14, final=True) is not None
    assert found.was_given_up(14)
    assert found.is_empty


def test_all_open_requests_are_cleared() -> None:
    found = InFlightRequests()
    callers = [Caller(1), Caller(2), Caller(3)]
    for place, caller in enumerate(callers):
        found.begin(10 + 2 * place, 11 + 2 * place, Batch([caller]))
    assert [request for request, _ in found.clear()] == callers
    assert found.is_empty

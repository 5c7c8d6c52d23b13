"""Callers that send a request with each response share their batches with those that wait meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.spec import BatchingSpec
from naiad.errors import NaiadError
from naiad.execution.model.loaded_model import LoadedModel
from support.event_loops import WAIT_S, run, until
from support.loaded_models import Caller, loaded, negate, spec
from support.worker_models import play

LONG_NS = 20_000_000
"""What the first run takes at least."""
CALLERS = 4
ROUNDS = 3


class FollowingCaller(Caller):
    """Sends the same request again with its response, until it has had ``rounds``; ``last`` is the last of them."""

    __slots__ = ("_model", "_rounds", "last", "number")

    def __init__(self, model: LoadedModel, value: float, rounds: int) -> None:
        super().__init__(value)
        self._model = model
        self.number = value
        self._rounds = rounds
        self.last: FollowingCaller | None = None

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        if self._rounds > 1:
            self.last = FollowingCaller(self._model, self.number, self._rounds - 1)
            self._model.submit(self.last)
        super().respond(outputs, error)


class SlowModel:
    """Negates. The first run begins when it is let, and each takes ``seconds``; notes how many rows each run had."""

    def __init__(self, seconds: float) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.rows: list[int] = []
        self._seconds = seconds

    def __call__(self, inputs: Arrays, outputs: object) -> Arrays:
        self.rows.append(len(inputs["x"]))
        self.entered.set()
        assert self.go_on.wait(WAIT_S)
        # A run's length is what decides, so it has to pass.
        threading.Event().wait(self._seconds)
        return negate(inputs, ("y",))


async def follow_up(model: LoadedModel, has_entered: Callable[[], bool], go_on: Callable[[], object]) -> None:
    """Send the first caller's request, those of the others while it runs, and await all responses."""
    callers = [FollowingCaller(model, value, ROUNDS) for value in range(CALLERS)]
    model.submit(callers[0])
    await until(has_entered)
    for caller in callers[1:]:
        model.submit(caller)
    go_on()
    for caller in callers:
        following: FollowingCaller | None = caller
        while following is not None:
            assert await following.answer() == [-following.number]
            following = following.last


def rows_of_runs(delay_ns: int, seconds: float, largest: int = CALLERS) -> list[int]:
    """The rows of all runs: one caller's first, and meanwhile the others come."""
    slow = SlowModel(seconds)

    async def test() -> None:
        batching = BatchingSpec((largest,), delay_ns)
        with loaded(spec(batching=batching), slow) as model:
            await follow_up(model, slow.entered.is_set, slow.go_on.set)

    run(test())
    assert sum(slow.rows) == CALLERS * ROUNDS
    return slow.rows


def test_a_long_run_ends_before_its_callers_follow_up() -> None:
    assert rows_of_runs(delay_ns=LONG_NS // 20, seconds=LONG_NS / 1e9) == [1, 4, 4, 3]


@pytest.mark.parametrize(
    ("delay_ns", "seconds", "largest"),
    [
        pytest.param(0, LONG_NS / 1e9, 4, id="no delay"),
        pytest.param(LONG_NS, LONG_NS / 1e9, 4, id="a short run"),
        pytest.param(LONG_NS // 20, LONG_NS / 1e9, 3, id="enough wait"),
    ],
)
def test_else_the_next_batch_does_not_wait(delay_ns: int, seconds: float, largest: int) -> None:
    assert rows_of_runs(delay_ns, seconds, largest)[:2] == [1, 3]


@pytest.mark.parametrize(
    ("delay_us", "batches"), [pytest.param(1000, {1: 1, 4: 2, 3: 1}, id="delay"), pytest.param(0, None, id="no delay")]
)
def test_callers_of_a_python_model(tmp_path: Path, delay_us: int, batches: dict[int, int] | None) -> None:
    """Its worker has the next batch before the responses, unless they wait for a long run as above."""
    entered, gate = tmp_path / "entered", tmp_path / "gate"
    methods = f"""
    def execute(self, requests):
        open({str(entered)!r}, "w").close()
        while not os.path.exists({str(gate)!r}):
            time.sleep(0.001)
        time.sleep({LONG_NS / 1e9})
        found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", -x)]) for x in found]
    """

    async def test(model: Any) -> None:
        await follow_up(model, entered.exists, gate.touch)
        found = {rows: times.compute_infer.count for rows, times in model.statistics.batches.items()}
        assert sum(rows * count for rows, count in found.items()) == CALLERS * ROUNDS
        assert found == batches if batches else found[3] > 1

    batching = f"dynamic_batching {{ preferred_batch_size: [ {CALLERS} ] max_queue_delay_microseconds: {delay_us} }}"
    play(tmp_path / "models", test, methods, batching)

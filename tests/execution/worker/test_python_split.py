"""Batches of Python models that fail, and whose models ask for them to be split: what runs again, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from naiad.errors import NaiadError
from support.event_loops import until
from support.noted_requests import submit
from support.worker_models import Caller, play

SPLIT = 'dynamic_batching { } parameters { key: "batch_error" value { string_value: "split" } }\n'
ANSWERS = """
        found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        self.sizes = getattr(self, "sizes", []) + [len(requests)]
        if any((x < 0).any() for x in found):
            raise ValueError("negative")
        size = np.array([[self.sizes[0]]], np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.hstack([x, size]))]) for x in found]
"""
PLAIN = "def execute(self, requests):" + ANSWERS
COROUTINE = "async def execute(self, requests):" + ANSWERS
BESIDE = "def execute(self, requests):\n    return self.later(requests)\n\nasync def later(self, requests):" + ANSWERS
# One answer for any number of requests: right only for a request that comes alone.
FORGETFUL = """
def execute(self, requests):
    x = pb_utils.get_input_tensor_by_name(requests[0], "x").as_numpy()
    return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)])]
"""
# Has answered the first by its sender when it fails.
ANSWERED = """
def execute(self, requests):
    sender = requests[0].get_response_sender()
    x = pb_utils.get_input_tensor_by_name(requests[0], "x").as_numpy()
    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    raise ValueError("too late")
"""
GONE = """
def execute(self, requests):
    raise SystemExit(3)
"""


async def answers(callers: list[Caller]) -> list[Any]:
    """The values of each, or the text of its error."""
    found: list[Any] = []
    for caller in callers:
        try:
            found.append((await caller.outputs())["y"].ravel().tolist())
        except NaiadError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("methods", [PLAIN, COROUTINE, BESIDE], ids=["plain", "coroutine", "beside"])
def test_one_by_one(tmp_path: Path, methods: str) -> None:
    async def test(model: Any) -> None:
        submit(model, *(callers := [Caller(v) for v in (1, 2, -3, 4)]))
        found = await answers(callers)
        assert [found[0], found[1], found[3]] == [[1, 4], [2, 4], [4, 4]], "the first run had all four"
        assert "message: ValueError: negative" in found[2]
        statistics = model.statistics
        await until(lambda: statistics.execution_count)
        assert (statistics.success.count, statistics.failure.count, statistics.execution_count) == (3, 1, 1)
        assert model.in_flight == 0
        # The process goes on.
        submit(model, caller := Caller(5))
        assert (await caller.outputs())["y"].ravel().tolist() == [5, 4]

    play(tmp_path, test, methods, SPLIT)


def test_a_wrong_result_is_a_failure_too(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, *(callers := [Caller(1), Caller(2)]))
        assert await answers(callers) == [[1], [2]]

    play(tmp_path, test, FORGETFUL, SPLIT)


def test_what_was_answered_does_not_run_again(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, *(callers := [Caller(1), Caller(2)]))
        found = await answers(callers)
        assert found[0] == [1]
        assert "ValueError: too late" in found[1]
        assert model.in_flight == 0

    play(tmp_path, test, ANSWERED, SPLIT)


@pytest.mark.parametrize("more", [SPLIT, "dynamic_batching { }\n"])
def test_every_request_is_answered_when_all_fail(tmp_path: Path, more: str) -> None:
    async def test(model: Any) -> None:
        submit(model, *(callers := [Caller(v) for v in (1, 2, 3)]))
        assert all("SystemExit: 3" in text for text in await answers(callers))
        assert model.statistics.failure.count == 3
        assert model.in_flight == 0

    play(tmp_path, test, GONE, more)


def test_without_it_the_batch_fails_as_a_whole(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, *(callers := [Caller(v) for v in (1, -2, 3)]))
        assert all("ValueError: negative" in text for text in await answers(callers))

    play(tmp_path, test, PLAIN, "dynamic_batching { }\n")

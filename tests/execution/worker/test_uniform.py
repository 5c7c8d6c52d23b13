"""Requests of one form travel to a process in one piece; each gets its own answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.errors import BackendError
from naiad.request import RequestOptions
from support.noted_requests import submit
from support.worker_models import Caller, play

BATCHING = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 2000000 }"
TWICE = """
    def execute(self, requests):
        assert len(requests) == 4
        found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", 2 * x)]) for x in found]
"""
IDS = """
    def execute(self, requests):
        ids = [r.request_id() for r in requests]
        return [
            pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{i!r} of {ids}")) for i in ids
        ]
"""


def terms_for(size: int) -> RequestOptions:
    return RequestOptions(("y",), 1, (("x", (size,)),))


@pytest.mark.parametrize("size", [0, 1, 16, 17, 8191, 8192])
def test_each_gets_its_own_answer(tmp_path: Path, size: int) -> None:
    async def test(model: Any) -> None:
        for begin in (0, 10):
            options = terms_for(size)
            callers = [Caller(np.full(size, begin + n), options, id=str(n)) for n in range(4)]
            submit(model, *callers)
            for n, caller in enumerate(callers):
                found = (await caller.outputs())["y"]
                assert found.shape == (1, size)
                assert (found == 2 * (begin + n)).all()

    play(tmp_path, test, TWICE, BATCHING)


def test_arrays_that_are_not_in_one_piece(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        options = terms_for(4)
        callers = [Caller(np.arange(4), options) for _ in range(4)]
        callers[2].inputs = {"x": np.arange(8, dtype=np.float32).reshape(1, 8)[:, ::2]}
        submit(model, *callers)
        assert (await callers[1].outputs())["y"].tolist() == [[0, 2, 4, 6]]
        assert (await callers[2].outputs())["y"].tolist() == [[0, 4, 8, 12]]

    play(tmp_path, test, TWICE, BATCHING)


@pytest.mark.parametrize(
    "ids", [("", "", "", ""), ("a", "", "ü", "b"), ("a\0b", "c", "", "d"), ("\0", "\0", "\0", "\0")]
)
def test_ids_arrive_as_they_are(tmp_path: Path, ids: tuple[str, ...]) -> None:
    async def test(model: Any) -> None:
        options = terms_for(1)
        callers = [Caller(1, options, id=i) for i in ids]
        submit(model, *callers)
        for caller, given in zip(callers, ids, strict=True):
            error = await caller.error()
            assert isinstance(error, BackendError)
            assert str(error).endswith(f"{given!r} of {list(ids)}")

    play(tmp_path, test, IDS, BATCHING)

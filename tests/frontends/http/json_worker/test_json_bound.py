"""Bodies of JSON that wait, and those that change settings: how many and how large they may be."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import numpy as np
import pytest

from naiad.errors import NaiadError, QueueFullError
from naiad.eventloop.sliced_work import SlicedWork
from naiad.frontends.http.json_worker.pool import MAX_WAITING, JsonWork
from naiad.frontends.http.json_worker.program import to_binary
from naiad.frontends.http.v2.small_body import MAX_BYTES
from naiad.scheduling.admission import RequestBudget
from naiad.tensor.dtypes import BY_WIRE
from naiad.wire.v2.header import parse_infer_header
from support.http_application import House, Peer, play
from support.served_models import identity, write_model

WAIT_S = 30.0
BODY = json.dumps({"inputs": [{"name": "a", "datatype": "INT32", "shape": [2], "data": [1, 2]}]}).encode()


def test_large_json_that_waits_is_bounded() -> None:
    async def test() -> None:
        budget = RequestBudget()
        work = JsonWork(budget, SlicedWork())
        outcomes: list[NaiadError | None] = []
        for _ in range(MAX_WAITING + 5):
            work.read(BODY, None, lambda content, size, error: outcomes.append(error))
        assert len(outcomes) == 5
        assert all(isinstance(error, QueueFullError) for error in outcomes)
        assert budget.refused["json"] == 5
        assert (budget.requests, budget.bytes) == (MAX_WAITING, MAX_WAITING * len(BODY))
        async with asyncio.timeout(WAIT_S):
            while len(outcomes) < MAX_WAITING + 5:
                await asyncio.sleep(0.01)
        assert outcomes[5:] == [None] * MAX_WAITING
        assert (budget.requests, budget.bytes) == (0, 0)
        work.close()

    asyncio.run(test())


def test_large_json_counts_among_all_requests() -> None:
    async def test() -> None:
        budget = RequestBudget(max_bytes=len(BODY) + 10)
        work = JsonWork(budget, SlicedWork())
        outcomes: list[NaiadError | None] = []
        for _ in range(2):
            work.read(BODY, None, lambda content, size, error: outcomes.append(error))
        (error,) = outcomes
        assert "--max-in-flight-bytes" in str(error)
        async with asyncio.timeout(WAIT_S):
            while len(outcomes) < 2:
                await asyncio.sleep(0.01)
        assert (budget.requests, budget.bytes) == (0, 0)
        work.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    "path",
    [
        "/v2/logging",
        "/v2/trace/setting",
        "/v2/models/same/trace/setting",
        "/v2/repository/index",
        "/v2/repository/models/same/unload",
    ],
)
def test_bodies_of_settings_are_bounded(tmp_path: Path, path: str) -> None:
    write_model(tmp_path, "same", identity())

    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.ask("POST", path, b"{" + b" " * MAX_BYTES + b"}")
        assert answer.status == 400
        assert str(MAX_BYTES) in answer.error

    play(tmp_path, scenario)


def test_what_means_nothing_does_not_come_back_to_the_loop() -> None:
    junk = [[1, 2], {"a": "b" * 1000}] * 100
    request = {
        "id": "7",
        "junk": junk,
        "parameters": {"p": 1.5, "sequence_id": 3},
        "inputs": [
            {"name": "a", "datatype": "INT32", "shape": [2], "data": [1, 2], "more": junk, "parameters": {"x": junk}},
            {"name": "b", "datatype": "INT8", "shape": [1], "parameters": {"binary_data_size": 1, "x": junk}},
        ],
        "outputs": [{"name": "y", "more": junk, "parameters": {"binary_data": True, "classification": 2, "x": junk}}],
    }
    raw = json.dumps(request).encode()
    described, *tensors, rest = to_binary(memoryview(raw + b"\x05"), len(raw), False)
    assert len(described) < 1000
    found, before = parse_infer_header(bytes(described)), parse_infer_header(raw)
    assert (found.id, found.parameters, found.sequence_id) == (before.id, before.parameters, before.sequence_id)
    assert found.outputs == before.outputs
    assert [(i.name, i.dtype, i.shape, i.binary_size) for i in found.inputs] == [
        ("a", BY_WIRE["INT32"], (2,), 8),
        ("b", BY_WIRE["INT8"], (1,), 1),
    ]
    assert [bytes(t) for t in tensors] == [np.array([1, 2], np.int32).tobytes(), b"\x05"]
    assert not rest


def test_parameters_come_back_as_they_were() -> None:
    parameters = {"f": math.nan, "g": math.inf, "text": "\u00fc\u20ac", "n": 2**63, "b": True}
    request = {"parameters": parameters, "inputs": [{"name": "a", "datatype": "BOOL", "shape": [0], "data": []}]}
    raw = json.dumps(request).encode()
    found = parse_infer_header(bytes(to_binary(memoryview(raw), len(raw), True)[0])).parameters
    assert repr(found) == repr(parameters)

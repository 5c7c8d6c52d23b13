"""Bodies of JSON that wait, and those that change settings: how many and how large they may be."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from frontends.http_application import House, Peer, play
from naiad.errors import NaiadError, QueueFullError
from naiad.frontends.http.json_work import MAX_WAITING, JsonWork
from naiad.frontends.http.settings_body import MAX_BYTES
from naiad.scheduling.budget import RequestBudget
from server.models import identity, write_model

WAIT_S = 10.0
BODY = json.dumps({"inputs": [{"name": "a", "datatype": "INT32", "shape": [2], "data": [1, 2]}]}).encode()


def test_large_json_that_waits_is_bounded() -> None:
    async def test() -> None:
        budget = RequestBudget()
        work = JsonWork(budget)
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
        work = JsonWork(budget)
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


@pytest.mark.parametrize("path", ["/v2/logging", "/v2/trace/setting", "/v2/models/same/trace/setting"])
def test_bodies_of_settings_are_bounded(tmp_path: Path, path: str) -> None:
    write_model(tmp_path, "same", identity())

    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.ask("POST", path, b"{" + b" " * MAX_BYTES + b"}")
        assert answer.status == 400
        assert str(MAX_BYTES) in answer.error

    play(tmp_path, scenario)

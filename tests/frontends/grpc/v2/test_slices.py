"""Responses about all models are made in turns of the loop, with other calls in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frontends.grpc.v2.test_services import Served, play
from naiad.config.messages import message_class
from naiad.eventloop import sliced_work
from naiad.wire.grpc.status import Status
from support.http_application import identity_config
from support.served_models import write_model

NAMES = ["a", "b", "c"]
METHODS = {"ModelStatistics": ({}, "model_stats"), "RepositoryIndex": ({"ready": True}, "models")}


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One model in each turn of the loop."""
    monkeypatch.setattr(sliced_work, "SLICE_NS", 1)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in NAMES:
        write_model(tmp_path, name, identity_config(("0", "TYPE_FP32", "[-1]")))
    return tmp_path


async def names(call: Any, method: str, field: str) -> list[str]:
    answer = await call.answer(message_class(f"{method}Response"))
    return [row.name for row in getattr(answer, field)]


@pytest.mark.parametrize("method", METHODS)
def test_other_calls_come_in_between(repository: Path, method: str) -> None:
    fields, field = METHODS[method]

    async def scenario(served: Served) -> None:
        long = served.call(method, **fields)
        assert served.call("ServerLive").code == Status.OK
        assert not long.ended
        assert await names(long, method, field) == NAMES

    play(repository, scenario)


@pytest.mark.parametrize("method", METHODS)
def test_a_caller_that_leaves_gets_nothing(repository: Path, method: str) -> None:
    fields, field = METHODS[method]

    async def scenario(served: Served) -> None:
        left, long = served.call(method, **fields), served.call(method, **fields)
        left.give_up()
        assert await names(long, method, field) == NAMES
        assert left.messages == []

    play(repository, scenario)

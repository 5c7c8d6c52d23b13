"""Which state may follow which, and which version serves."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from naiad.errors import InternalError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.lifecycle.state.model_table import ModelEntry, VersionEntry
from naiad.lifecycle.state.states import NEXT, ModelState
from support.event_loops import run
from support.loaded_models import FunctionBackend, negate, spec

S = ModelState
LEGAL = {
    (S.UNKNOWN, S.LOADING),
    (S.LOADING, S.READY),
    (S.LOADING, S.UNAVAILABLE),
    (S.READY, S.UNLOADING),
    (S.UNLOADING, S.UNAVAILABLE),
    (S.UNAVAILABLE, S.LOADING),
}


@pytest.mark.parametrize(("before", "after"), list(product(S, S)))
def test_transitions(before: ModelState, after: ModelState) -> None:
    entry = VersionEntry(1, before, "old")
    if (before, after) in LEGAL:
        entry.become(after, "new")
        assert (entry.state, entry.reason) == (after, "new")
        entry = VersionEntry(1, before, "old")
        entry.become(after)
        assert entry.reason == ""
    else:
        with pytest.raises(InternalError, match="version 1 cannot go from"):
            entry.become(after)
        assert (entry.state, entry.reason) == (before, "old")


def test_every_state_has_a_way_on() -> None:
    assert set(NEXT) == set(S)
    assert all(NEXT.values())


def test_names_are_those_of_the_index() -> None:
    assert [str(s) for s in S] == ["", "LOADING", "READY", "UNLOADING", "UNAVAILABLE"]


def test_the_highest_ready_version_serves() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        entry = ModelEntry("m")
        entry.choose_serving()
        assert entry.serving is None
        for version in (2, 10, 9):
            found = VersionEntry(version, S.READY)
            found.model = LoadedModel(spec(), version, FunctionBackend(lambda index: negate), loop)
            entry.versions[version] = found
        entry.versions[11] = VersionEntry(11, S.LOADING)
        for expected in (10, 9, 2):
            entry.choose_serving()
            assert entry.serving is entry.versions[expected].model
            entry.versions[expected].become(S.UNLOADING)
        entry.choose_serving()
        assert entry.serving is None

    run(test())

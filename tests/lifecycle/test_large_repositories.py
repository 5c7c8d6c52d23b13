"""Repositories with more models than callers may ask for at a time: the server's own loads are not refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.memory.test_budget import chained, ready
from naiad.lifecycle.polling import Polling
from naiad.lifecycle.state import operations
from naiad.repository.catalog import Catalog
from naiad.repository.changes.watch import Watch
from naiad.testing import write_model
from support.explicit_manager import LATE, House, play
from support.http_application import identity_config, load_repository

MANY = 12


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers may ask for little, so that little is much."""
    monkeypatch.setattr(operations, "MAX_REQUESTED", 4)
    monkeypatch.setattr(operations, "MAX_WAITING", 2)


@pytest.mark.usefixtures("few")
def test_all_of_them_are_loaded_at_the_start(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        names = {f"m{number}" for number in range(MANY)}
        for name in names:
            found.write(name)
        await load_repository(found.manager, found.repository)
        assert ready(found) == names

    play(tmp_path, scenario)


@pytest.mark.usefixtures("few")
def test_any_number_of_ensembles_waits_for_a_member(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        names = {f"ensemble{number}" for number in range(MANY)}
        found.write("member", LATE)
        for name in names:
            found.write(name, chained("member"))
        await load_repository(found.manager, found.repository)
        assert ready(found) == {"member", *names}

    play(tmp_path, scenario, is_explicit=False)


@pytest.mark.usefixtures("few")
def test_one_look_brings_all_that_came(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        names = {f"m{number}" for number in range(MANY)}
        polling = Polling(found.manager, Watch(Catalog((found.repository,))), 60)
        for name in names:
            write_model(found.repository, name, identity_config(("0", "TYPE_FP32", "[ 1 ]")))
        # Two looks have to find a model the same.
        for _ in range(2):
            await polling.look()
        await polling.wait()
        assert ready(found) == names

    play(tmp_path, scenario, is_explicit=False)

"""Ensembles are notified of members that come and go; their requests do not look them up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lifecycle.ensembles.test_dependencies import CACHED, ensemble, loaded
from naiad.cache.local import LocalCache
from naiad.engine.engine import Engine
from naiad.execution.ensemble.model import EnsembleModel
from naiad.repository.catalog import Catalog
from support.config_texts import parameter
from support.explicit_manager import CONFIG, House, answered, caller, play

ALL = CONFIG + " version_policy { all { } }"


async def run_one(model: EnsembleModel) -> None:
    one = caller(1)
    model.submit(one)
    await answered(one)


def test_a_request_looks_no_member_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_names: list[str] = []
    find = Engine.find

    def counted(self: Engine, name: str, version: str | None) -> Any:
        found_names.append(name)
        return find(self, name, version)

    monkeypatch.setattr(Engine, "find", counted)

    async def test(found: House) -> None:
        model = await loaded(found, "m", CONFIG, ensemble("m"))
        await run_one(model)
        found_names.clear()
        for _ in range(3):
            await run_one(model)
        assert found_names == []
        found.write("m", CONFIG + parameter("other", 1))
        await found.manager.load_model("m")
        await run_one(model)
        assert "m" in found_names

    play(tmp_path, test)


def test_a_version_that_joins_others_runs_the_next_request(tmp_path: Path) -> None:
    async def test(found: House) -> None:
        model = await loaded(found, "m", ALL, ensemble("m"))
        await run_one(model)
        first = model.members[0]
        (found.repository / "m" / "2").mkdir()
        # As polling does it. Version 1 has not changed: nothing is unloaded, and nobody looks at ensembles afterwards.
        source = Catalog((found.repository,)).find("m")
        assert await found.manager.follow("m", source, frozenset({1}))
        assert found.engine.find("m", "1") is first
        await run_one(model)
        assert model.members[0] is found.engine.find("m", "2")
        assert model.members[0].statistics.success.count == 1

    play(tmp_path, test)


@pytest.mark.parametrize("change", ["replaced", "routed"])
def test_a_cached_response_is_gone_with_a_member_of_a_member(tmp_path: Path, change: str) -> None:
    async def test(found: House) -> None:
        found.write("outer", ensemble("e", more=CACHED))
        await loaded(found, "m", ALL, ensemble("m"))
        (found.repository / "m" / "2").mkdir()
        await found.manager.load_model("m")
        await found.manager.load_model("outer")
        outer = found.engine.find("outer", None)
        assert isinstance(outer, EnsembleModel)
        for _ in range(2):
            await run_one(outer)
        assert (outer.statistics.cache_hit.count, outer.statistics.cache_miss.count) == (1, 1)
        # A model that it is not made of changes nothing.
        found.write("other")
        await found.manager.load_model("other")
        await run_one(outer)
        assert (outer.statistics.cache_hit.count, outer.statistics.cache_miss.count) == (2, 1)
        if change == "replaced":
            found.write("m", ALL + parameter("other", 1))
            await found.manager.load_model("m")
        else:
            found.engine.routes.change("m", {"split": {"1": 1}})
        await run_one(outer)
        assert (outer.statistics.cache_hit.count, outer.statistics.cache_miss.count) == (2, 2)

    play(tmp_path, test, cache=LocalCache(1 << 20))

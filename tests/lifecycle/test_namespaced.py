"""Loads where names repeat in several repositories, each a namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lifecycle.memory.test_budget import chained
from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.repository.catalog import Catalog
from support import event_loops
from support.event_loops import WAIT_S, until
from support.explicit_manager import CONFIG, House, unloading
from support.http_application import identity_config

BROKEN = CONFIG.replace("identity", "nonsense")
OTHER = identity_config(("0", "TYPE_INT64", "[ 1 ]"), more="max_batch_size: 4")


class NamespacedHouse(House):
    """A house of two repositories: ``first``, which ``write`` writes to, and ``second``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "first")
        self.second = folder / "second"
        catalog = Catalog((self.repository, self.second), has_namespaces=True)
        self.manager = ModelManager(LoadSettings(lambda backend: {}, cores=1), 2, catalog, is_explicit=True)
        self.engine = Engine(self.manager, "test", True)
        self.manager.loaded = True

    def write_second(self, name: str, config: str = CONFIG) -> None:
        (self.second / name / "1").mkdir(parents=True, exist_ok=True)
        (self.second / name / "config.pbtxt").write_text(config)

    def ready(self) -> set[str]:
        """As ``<repository>/<name>``."""
        return {f"{Path(row['namespace']).name}/{row['name']}" for row in self.engine.index(True)}

    async def load(self, repository: Path, name: str) -> None:
        """A load that has to come to its end."""
        await asyncio.wait_for(self.manager.load_model(f"{repository}/{name}"), WAIT_S)


def play(tmp_path: Path, scenario: Callable[[NamespacedHouse], Coroutine[Any, Any, None]]) -> None:
    event_loops.play(unloading(NamespacedHouse(tmp_path)), scenario)


def test_one_that_is_broken_leaves_the_others_of_its_name_alone(tmp_path: Path) -> None:
    async def scenario(found: NamespacedHouse) -> None:
        found.write("m", BROKEN)
        found.write_second("m")
        with pytest.raises(NaiadError, match="nonsense"):
            await found.manager.load_model("m")
        assert found.ready() == {"second/m"}

    play(tmp_path, scenario)


def test_an_ensemble_whose_own_member_is_broken_holds_no_load_up(tmp_path: Path) -> None:
    """It fits with the member of another namespace, and loading it again tries its own one."""

    async def scenario(found: NamespacedHouse) -> None:
        found.write("ens", chained("m"))
        found.write("m", BROKEN)
        found.write_second("m")
        await found.load(found.second, "m")
        with pytest.raises(NaiadError, match="has no loaded version"):
            await found.load(found.repository, "ens")
        found.write_second("other")
        await found.load(found.second, "other")
        assert found.ready() == {"second/m", "second/other"}
        found.write("m")
        await found.load(found.repository, "m")
        await until(lambda: "first/ens" in found.ready())

    play(tmp_path, scenario)


def test_an_ensemble_that_its_own_member_does_not_fit_holds_no_load_up(tmp_path: Path) -> None:
    """It serves with the member of another namespace, goes on so, and does not take its own one."""

    async def scenario(found: NamespacedHouse) -> None:
        found.write("ens", chained("m"))
        found.write_second("m")
        await found.load(found.second, "m")
        await found.load(found.repository, "ens")
        assert found.ready() == {"second/m", "first/ens"}
        found.write("m", OTHER)
        await found.load(found.repository, "m")
        assert found.ready() == {"second/m", "first/ens", "first/m"}
        found.write("m")
        await found.load(found.repository, "m")
        assert found.ready() == {"second/m", "first/ens", "first/m"}

    play(tmp_path, scenario)

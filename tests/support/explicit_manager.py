"""A manager in explicit mode for tests, with a repository of small models that changes while they run."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from naiad.engine.engine import Engine
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import NO_LIMITS, ModelManager
from naiad.lifecycle.memory.budget import MemorySettings
from naiad.repository.catalog import Catalog
from naiad.request import RequestOptions
from naiad.testing import write_model
from support.http_application import identity_config, run
from support.loaded_models import Caller, until

CONFIG = identity_config(("0", "TYPE_FP32", "[ 1 ]"), more="max_batch_size: 4")
AS_JSON = """{"backend": "identity", "max_batch_size": %d,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}]}"""


def parameter(name: str, value: object) -> str:
    return f' parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'


SLOW = CONFIG + parameter("execute_delay_ms", 800)
LATE = CONFIG + parameter("creation_delay_sec", 0.3)


class House:
    """A manager in explicit mode, and what it serves."""

    def __init__(
        self,
        repository: Path,
        threads: int = 2,
        is_explicit: bool = True,
        memory: MemorySettings = NO_LIMITS,
        **more: Any,
    ) -> None:
        """``more`` is of ``LoadSettings``."""
        repository.mkdir(exist_ok=True)
        settings = LoadSettings(lambda backend: {}, cores=1, **more)
        self.repository = repository
        self.manager = ModelManager(settings, threads, Catalog((repository,)), is_explicit, memory)
        self.engine = Engine(self.manager, "test", True)
        self.manager.loaded = True

    def write(self, name: str, config: str = CONFIG, versions: tuple[int, ...] = (1,)) -> None:
        """Write a model, or write it anew; its configuration is then of another time."""
        folder = self.repository / name
        if not folder.exists():
            write_model(self.repository, name, config, versions)
        file = folder / "config.pbtxt"
        file.write_text(config)
        os.utime(file, ns=(0, self.next_time()))

    _time = 0

    def next_time(self) -> int:
        House._time += 1
        return House._time

    def index(self) -> dict[str, tuple[str, str]]:
        """State and reason by ``name:version``."""
        rows = self.engine.index(False)
        return {f"{r['name']}:{r.get('version', '')}": (r.get("state", ""), r.get("reason", "")) for r in rows}

    async def done(self, state: dict[str, tuple[str, str]]) -> None:
        """Wait until the index is this."""
        await until(lambda: self.index() == state)


@contextlib.asynccontextmanager
async def house(tmp_path: Path, **more: Any) -> AsyncIterator[House]:
    found = House(tmp_path / "models", **more)
    try:
        yield found
    finally:
        assert await found.manager.unload_all(20)


def play(tmp_path: Path, scenario: Callable[[House], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Run ``scenario`` with a house of its own, within a time limit; ``more`` is as ``House`` takes it."""

    async def test() -> None:
        async with house(tmp_path, **more) as found:
            await scenario(found)

    run(test())


def caller(value: float = 1.0) -> Caller:
    found = Caller(value, options=RequestOptions(("OUTPUT0",), 1))
    found.inputs = {"INPUT0": found.inputs["x"]}
    return found


async def answered(one: Caller) -> None:
    """Wait for a good answer."""
    await asyncio.wait_for(one.done.wait(), 10)
    assert [error for _, error in one.answers] == [None]


GONE = ("UNAVAILABLE", "unloaded")
READY = ("READY", "")

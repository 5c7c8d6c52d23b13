"""A manager in explicit mode for tests, with a repository of small models that changes while they run."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from naiad.engine.engine import Engine
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import NO_LIMITS, ModelManager
from naiad.lifecycle.memory.budget import MemorySettings
from naiad.repository.catalog import Catalog
from naiad.request import RequestOptions
from naiad.testing import write_model
from support import event_loops
from support.config_texts import parameter
from support.event_loops import until
from support.http_application import identity_config
from support.loaded_models import Caller

CONFIG = identity_config(("0", "TYPE_FP32", "[ 1 ]"), more="max_batch_size: 4")
AS_JSON = """{"backend": "identity", "max_batch_size": %d,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}]}"""


SLOW = CONFIG + parameter("execute_delay_ms", 800)
LATE = CONFIG + parameter("creation_delay_sec", 0.3)


TIMES = count(1)


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
        self.catalog = Catalog((repository,))
        self.manager = ModelManager(settings, threads, self.catalog, is_explicit, memory)
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

    def next_time(self) -> int:
        """A time that no file was written at yet."""
        return next(TIMES)

    def index(self) -> dict[str, tuple[str, str]]:
        """State and reason by ``name:version``."""
        rows = self.engine.index(False)
        return {f"{r['name']}:{r.get('version', '')}": (r.get("state", ""), r.get("reason", "")) for r in rows}

    async def done(self, state: dict[str, tuple[str, str]]) -> None:
        """Wait until the index is this."""
        await until(lambda: self.index() == state)


AnyHouse = TypeVar("AnyHouse", bound=House)


@contextlib.asynccontextmanager
async def unloading(found: AnyHouse) -> AsyncIterator[AnyHouse]:
    """A house whose models must all unload in time in the end."""
    try:
        yield found
    finally:
        assert await found.manager.unload_all(20)


def house(tmp_path: Path, **more: Any) -> contextlib.AbstractAsyncContextManager[House]:
    """A house of its own; ``more`` is as ``House`` takes it."""
    return unloading(House(tmp_path / "models", **more))


def play(tmp_path: Path, scenario: Callable[[House], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Run ``scenario`` with a house of its own, within a time limit; ``more`` is as ``House`` takes it."""
    event_loops.play(house(tmp_path, **more), scenario)


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

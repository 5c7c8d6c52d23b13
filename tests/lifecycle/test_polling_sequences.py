"""Any sequence of changes to a repository and looks at it, held to a plain description of what must come of it.

The watch, the manager and the files are real. Hypothesis chooses what changes and when somebody looks; ``Expected``
says what the index, readiness and look-ups must show then, and which versions must be the very ones of before.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lifecycle.test_control_sequences import FAILED, GONE, NAMES, READY, pbtxt, shown
from lifecycle.test_polling import PolledHouse
from support.event_loops import until
from support.explicit_manager import answered, caller

VERSIONS = st.sets(st.integers(1, 4), min_size=1, max_size=3)
NAME = st.sampled_from(NAMES)


class Lies(NamedTuple):
    """What lies in the repository. ``kind``: good, unknown (its backend is) or unreadable (its configuration is).

    ``data`` has the content of each version, ``stamp`` is another one whenever a file was touched.
    """

    kind: str
    tag: int
    data: Mapping[int, int]
    stamp: int

    @property
    def content(self) -> tuple[str, int, dict[int, int]]:
        return self.kind, self.tag, dict(self.data)


@dataclass
class Expected:
    """What must be known of one model. ``loads`` tells by version which load it must be from."""

    lies: Lies | None = None
    seen: int | None = None
    tried: Lies | None = None
    serving: Lies | None = None
    versions: dict[int, str] = field(default_factory=dict)
    loads: dict[int, int] = field(default_factory=dict)
    has_entry: bool = False
    has_problem: bool = False
    is_stale: bool = False
    is_watched: bool = False
    counter: int = 0

    @property
    def serves(self) -> bool:
        return READY in self.versions.values()

    @property
    def stamp(self) -> int:
        return self.lies.stamp if self.lies is not None else -1

    def look(self) -> None:
        """Somebody looks: what lies there as it did at the look before is taken up."""
        is_still, self.seen = self.seen == self.stamp, self.stamp
        if not is_still:
            self.is_watched = self.is_watched or self.lies is not None
            return
        if self.lies is None:
            if self.is_watched:
                self.unload()
        elif self.tried is None or self.tried.stamp != self.lies.stamp:
            is_settled = self.serves and not self.is_stale and not self.has_problem
            is_same = self.tried is not None and self.tried.content == self.lies.content
            self.tried = self.lies
            if not (is_same and is_settled):
                self.load(self.lies)

    def unload(self) -> None:
        self.versions = dict.fromkeys(self.versions, GONE)
        self.has_entry, self.has_problem, self.is_watched = bool(self.versions), False, False
        self.tried = self.serving = None
        self.loads.clear()

    def load(self, lies: Lies) -> None:
        self.has_entry = True
        if lies.kind == "good":
            self.replace(lies)
        elif self.serves:
            self.is_stale = True
        elif lies.kind == "unreadable":
            self.has_problem = True
            self.versions = dict.fromkeys(self.versions, FAILED)
        else:
            self.has_problem = False
            self.versions = dict.fromkeys(self.versions, GONE) | dict.fromkeys(lies.data, FAILED)

    def replace(self, lies: Lies) -> None:
        self.counter += 1
        before = self.serving.data if self.serving is not None and self.serving.tag == lies.tag else {}
        kept = {v for v in lies.data if v in self.loads and before.get(v) == lies.data[v]}
        self.loads = {v: self.loads[v] if v in kept else self.counter for v in lies.data}
        self.versions = dict.fromkeys(self.versions, GONE) | dict.fromkeys(lies.data, READY)
        self.serving, self.is_stale, self.has_problem = lies, False, False

    def rows(self, name: str) -> dict[str, str]:
        """What the index has, by ``name:version``."""
        if not self.has_entry:
            return {f"{name}:": ""} if self.is_watched else {}
        if not self.versions:
            return {f"{name}:": FAILED}
        return {f"{name}:{v}": "stale" if self.is_stale and s == READY else s for v, s in self.versions.items()}


class Sequences(RuleBasedStateMachine):
    """The server on one side and ``Expected`` on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.expected = {name: Expected() for name in NAMES}
        self.seen: dict[tuple[str, int], tuple[int, object]] = {}
        self.earlier: dict[str, Lies] = {}
        self.stamp = 0
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.run(self.start())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(asyncio.wait_for(work, 20))

    async def start(self) -> None:
        self.house = PolledHouse(self.folder / "models")
        self.house.manager.loaded = True

    def teardown(self) -> None:
        async def end() -> None:
            await self.house.polling.wait()
            assert await self.house.manager.unload_all(20)

        self.run(end())
        self.runner.close()
        shutil.rmtree(self.folder)

    # What lies there

    @initialize(name=NAME, versions=VERSIONS)
    def begin(self, name: str, versions: set[int]) -> None:
        self.configure(name, versions, "good")

    @rule(name=NAME, versions=VERSIONS, kind=st.sampled_from(("good", "good", "unknown", "unreadable")))
    def configure(self, name: str, versions: set[int], kind: str) -> None:
        """Another configuration, good or not."""
        tag = self.next()
        self.put(name, Lies(kind, tag, dict.fromkeys(versions, tag), tag))

    @rule(name=NAME, version=st.integers(1, 4))
    def write_version(self, name: str, version: int) -> None:
        """A new version, or another content of one."""
        if (lies := self.expected[name].lies) is not None:
            stamp = self.next()
            self.put(name, lies._replace(data={**lies.data, version: stamp}, stamp=stamp))

    @rule(name=NAME, version=st.integers(1, 4))
    def remove_version(self, name: str, version: int) -> None:
        lies = self.expected[name].lies
        if lies is not None and set(lies.data) - {version}:
            left = {v: content for v, content in lies.data.items() if v != version}
            self.put(name, lies._replace(data=left, stamp=self.next()))

    @rule(name=NAME)
    def touch(self, name: str) -> None:
        if (lies := self.expected[name].lies) is not None:
            self.put(name, lies._replace(stamp=self.next()))

    @rule(name=NAME)
    def put_back(self, name: str) -> None:
        """Content that was good earlier."""
        if (lies := self.earlier.get(name)) is not None:
            self.put(name, lies._replace(stamp=self.next()))

    @rule(name=NAME)
    def remove(self, name: str) -> None:
        shutil.rmtree(self.folder / "models" / name, ignore_errors=True)
        self.expected[name].lies = None

    def next(self) -> int:
        self.stamp += 1
        return self.stamp

    def put(self, name: str, lies: Lies) -> None:
        """Write all of it anew, with times of its own."""
        if lies.kind == "good":
            self.earlier[name] = lies
        folder = self.folder / "models" / name
        shutil.rmtree(folder, ignore_errors=True)
        texts = {folder / str(version) / "data": str(content) for version, content in lies.data.items()}
        config = pbtxt(lies.tag, "nonsense" if lies.kind == "unknown" else "identity")
        texts[folder / "config.pbtxt"] = config + ("{" if lies.kind == "unreadable" else "")
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            os.utime(file, ns=(0, lies.stamp))
        self.expected[name].lies = lies

    # Looks

    @rule()
    def look(self) -> None:
        self.run(self.look_and_compare())

    @rule()
    def settle(self) -> None:
        for _ in range(3):
            self.run(self.look_and_compare())

    async def look_and_compare(self) -> None:
        callers = [caller() for expected in self.expected.values() if expected.serves]
        names = [name for name, expected in self.expected.items() if expected.serves]
        for name, one in zip(names, callers, strict=True):
            one.inputs = {"INPUT0": one.inputs["INPUT0"][0]}
            self.house.engine.find(name, None).submit(one)
        await self.house.polling.look()
        await self.house.polling.wait()
        for expected in self.expected.values():
            expected.look()
        for one in callers:
            await answered(one)
        await until(lambda: all(not entry.unloading for entry in self.house.manager.entries.values()))
        self.compare()

    def compare(self) -> None:
        engine = self.house.engine
        index = {f"{row['name']}:{row.get('version', '')}": shown(row) for row in engine.index(False)}
        assert index == {k: v for name in NAMES for k, v in self.expected[name].rows(name).items()}
        failed = [e for e in self.expected.values() if e.has_problem or FAILED in e.versions.values()]
        assert engine.is_ready() == (not failed), engine.not_ready()
        for name, expected in self.expected.items():
            assert engine.is_model_ready(name, None) == expected.serves
            if expected.serves:
                assert engine.find(name, None).version == max(expected.loads)
            for version, load in expected.loads.items():
                model = engine.find(name, str(version))
                before = self.seen.get((name, version), (-1, None))
                assert (model is before[1]) == (load == before[0])
                self.seen[name, version] = load, model


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_any_sequence_of_changes() -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Sequences,
        settings=settings(max_examples=130, stateful_step_count=40, deadline=None, suppress_health_check=slow),
    )

"""Any sequence of loads, unloads, changes, faults and repairs, held to a plain description of what must come of it.

The manager is the real one, with real files and the identity backend. Hypothesis chooses what happens and in which
order, also several operations at once; ``Expected`` says what the index, readiness and look-ups must show then.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from naiad.engine.engine import Engine
from naiad.errors import NaiadError, NotFoundError
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.repository.catalog import Catalog
from naiad.repository.local.overrides import NO_OVERRIDES, Overrides
from naiad.request import RequestOptions
from support.event_loops import until
from support.http_application import identity_config
from support.loaded_models import Caller

NAMES = ("a", "b")
READY, GONE, FAILED = "READY", "gone", "failed"
VERSIONS = st.sets(st.integers(1, 4), min_size=1, max_size=3).map(frozenset)
TENSOR = {"data_type": "TYPE_FP32", "dims": [1]}


def pbtxt(tag: int, backend: str = "identity", count: int = 1) -> str:
    """A configuration that can be told from others by its tag; its requests take a thread some milliseconds."""
    parameters = f"""parameters {{ key: "tag" value {{ string_value: "{tag}" }} }}
        parameters {{ key: "execute_delay_ms" value {{ string_value: "3" }} }} version_policy {{ all {{ }} }}
        instance_group {{ count: {count} kind: KIND_CPU }}"""
    return identity_config(("0", "TYPE_FP32", "[ 1 ]"), more=parameters).replace("identity", backend, 1)


def as_json(tag: int) -> str:
    """The same as JSON."""
    tensors = {"input": [{"name": "INPUT0", **TENSOR}], "output": [{"name": "OUTPUT0", **TENSOR}]}
    values = {"tag": {"string_value": str(tag)}, "execute_delay_ms": {"string_value": "3"}}
    return json.dumps({"backend": "identity", **tensors, "parameters": values, "version_policy": {"all": {}}})


class Lies(NamedTuple):
    """What lies in the repository. ``kind``: good, unknown (its backend is) or unreadable (its configuration is).

    ``stamp`` tells the files from all others, ``tag`` what is in them but for the ``count`` of instances.
    """

    kind: str
    tag: int
    versions: frozenset[int]
    count: int = 1
    stamp: int = 0


@dataclass
class Expected:
    """What must be known of one model.

    ``has_entry``: it was loaded, or tried, and is remembered. ``files`` is the stamp of the files that it came from,
    ``loads`` how often it was really loaded, ``count`` how many instances each version has.
    """

    lies: Lies | None = None
    has_entry: bool = False
    versions: dict[int, str] = field(default_factory=dict)
    tag: int | None = None
    files: int | None = None
    is_stale: bool = False
    has_problem: bool = False
    loads: int = 0
    count: int = 1

    @property
    def serves(self) -> bool:
        return READY in self.versions.values()

    def load(self, was_listed: bool, tag: int | None, brought: frozenset[int] | None) -> bool:
        """A load, with a configuration where there is a ``tag``, and files of such versions; whether it succeeds."""
        lies = self.lies if brought is None else Lies("good", 0, brought)
        if lies is None or (lies.kind == "unreadable" and tag is None):
            self._not_found(was_listed)
            return False
        if self.serves and tag is None and self.files == lies.stamp:
            self.is_stale = False
            return True
        if self.serves and tag is None and self._is_regrouped(lies):
            self.count, self.files, self.is_stale = lies.count, lies.stamp, False
            return True
        if lies.kind == "unknown" and tag is None:
            self._not_loaded(lies.versions)
            return False
        self.versions = dict.fromkeys(self.versions, GONE) | dict.fromkeys(lies.versions, READY)
        self.has_entry, self.is_stale, self.has_problem = True, False, False
        self.loads += 1
        self.tag = lies.tag if tag is None else tag
        self.files = lies.stamp if brought is None else None
        self.count = lies.count if tag is None else 1
        return True

    def _is_regrouped(self, lies: Lies) -> bool:
        """Nothing but the number of instances is another one than what serves has, or not even that."""
        ready = {version for version, state in self.versions.items() if state == READY}
        return lies.kind == "good" and lies.tag == self.tag and ready == lies.versions and self.files is not None

    def _not_found(self, was_listed: bool) -> None:
        if self.serves:
            self.is_stale = True
        elif self.has_entry or was_listed:
            self.has_entry = self.has_problem = True
            self.versions = dict.fromkeys(self.versions, FAILED)

    def _not_loaded(self, versions: frozenset[int]) -> None:
        if self.serves:
            self.is_stale = True
            return
        self.versions = dict.fromkeys(self.versions, GONE) | dict.fromkeys(versions, FAILED)
        self.has_entry, self.has_problem = True, False

    def unload(self) -> None:
        self.versions = dict.fromkeys(self.versions, GONE)
        self.has_entry = bool(self.versions)
        self.has_problem = False
        self.files = None

    def rows(self, name: str) -> dict[str, str]:
        """What the index has, by ``name:version``."""
        if not self.has_entry:
            return {f"{name}:": ""} if self.lies is not None else {}
        if not self.versions:
            return {f"{name}:": FAILED}
        return {f"{name}:{v}": "stale" if self.is_stale and s == READY else s for v, s in self.versions.items()}


def shown(row: dict[str, str]) -> str:
    """The row of an index in the words used here."""
    state, reason = row.get("state", ""), row.get("reason", "")
    if state == "UNAVAILABLE":
        return GONE if reason == "unloaded" else FAILED if reason else "no reason"
    if state == READY and reason.startswith("serves as before"):
        return "stale"
    return f"{state}{reason}"


class Asked(NamedTuple):
    """One operation: ``what`` is load, configured, brought (with files) or unload."""

    name: str
    what: str
    versions: frozenset[int]


ASKED = st.builds(
    Asked,
    st.sampled_from(NAMES),
    st.sampled_from(("load", "load", "load", "configured", "brought", "unload")),
    VERSIONS,
)


class Sequences(RuleBasedStateMachine):
    """The server on one side and ``Expected`` on the other."""

    backend = "identity"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.expected = {name: Expected() for name in NAMES}
        self.listed: frozenset[str] = frozenset()
        self.seen: dict[str, tuple[int, object]] = {}
        self.good: dict[str, Lies] = {}
        self.tag = 0
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.run(self.start())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(asyncio.wait_for(work, 20))

    async def start(self) -> None:
        loading = LoadSettings(lambda backend: {}, cores=1)
        self.manager = ModelManager(loading, 2, Catalog((self.folder,)), is_explicit=True)
        self.engine = Engine(self.manager, "test", True)
        self.manager.loaded = True

    def teardown(self) -> None:
        async def end() -> None:
            assert await self.manager.unload_all(20)

        self.run(end())
        self.runner.close()
        shutil.rmtree(self.folder)

    # What lies there

    @initialize(name=st.sampled_from(NAMES), versions=VERSIONS)
    def begin(self, name: str, versions: frozenset[int]) -> None:
        self.write(name, "good", versions)

    @rule(name=st.sampled_from(NAMES), versions=VERSIONS)
    def change_or_repair(self, name: str, versions: frozenset[int]) -> None:
        self.write(name, "good", versions)

    @rule(name=st.sampled_from(NAMES), versions=VERSIONS, kind=st.sampled_from(("unknown", "unreadable")))
    def break_it(self, name: str, versions: frozenset[int], kind: str) -> None:
        self.write(name, kind, versions)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3))
    def regroup(self, name: str, count: int) -> None:
        """The same with other instances; a load gives those to what serves, without loading it anew."""
        load = [Asked(name, "load", frozenset())]
        lies = self.expected[name].lies
        if lies is not None and lies.kind == "good":
            self.operate(load)
            self.tag += 1
            self.good[name] = lies._replace(count=count, stamp=self.tag)
            self.put(name, self.good[name])
            self.operate(load)

    @rule(name=st.sampled_from(NAMES))
    def put_back(self, name: str) -> None:
        """The very files of earlier, with their times."""
        if (good := self.good.get(name)) is not None:
            self.put(name, good)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.expected[name].lies = None

    def write(self, name: str, kind: str, versions: frozenset[int]) -> None:
        self.tag += 1
        lies = Lies(kind, self.tag, versions, stamp=self.tag)
        if kind == "good":
            self.good[name] = lies
        self.put(name, lies)

    def put(self, name: str, lies: Lies) -> None:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        for version in lies.versions:
            (folder / str(version)).mkdir(parents=True)
        file = folder / "config.pbtxt"
        config = pbtxt(lies.tag, "nonsense" if lies.kind == "unknown" else self.backend, lies.count)
        file.write_text(config + ("{" if lies.kind == "unreadable" else ""))
        os.utime(file, ns=(0, lies.stamp))
        self.expected[name].lies = lies

    # What is asked for

    @rule(together=st.lists(ASKED, min_size=1, max_size=3))
    def operate(self, together: list[Asked]) -> None:
        """Operations at once, so few that MAX_UNLOADING refuses none.

        Those on one model take turns; the requests that came before them are all answered.
        """
        self.run(self.ask(together))

    async def ask(self, together: Sequence[Asked]) -> None:
        callers = [self.caller(name) for name in NAMES if self.expected[name].serves]
        ended = [asyncio.get_running_loop().create_future() for _ in together]
        succeeds = []
        for asked, future in zip(together, ended, strict=True):
            if asked.what == "unload":
                self.manager.begin_unload(asked.name, False, future.set_result)
                self.expected[asked.name].unload()
                succeeds.append(True)
            else:
                self.tag += 1
                self.manager.begin_load(asked.name, self.overrides(asked), future.set_result)
                tag = None if asked.what == "load" else self.tag
                brought = asked.versions if asked.what == "brought" else None
                succeeds.append(self.expected[asked.name].load(asked.name in self.listed, tag, brought))
        errors: list[NaiadError | None] = await asyncio.gather(*ended)
        assert [error is None for error in errors] == succeeds, errors
        for caller in callers:
            await asyncio.wait_for(caller.done.wait(), 10)
            assert [error for _, error in caller.answers] == [None]
        await self.compare()

    def overrides(self, asked: Asked) -> Overrides:
        if asked.what == "load":
            return NO_OVERRIDES
        some = base64.b64encode(b"some").decode()
        files = {f"file:{version}/some": some for version in asked.versions} if asked.what == "brought" else {}
        return Overrides(as_json(self.tag), files)

    def caller(self, name: str) -> Caller:
        found = Caller(1.0, options=RequestOptions(("OUTPUT0",), 1))
        found.inputs = {"INPUT0": found.inputs["x"][0]}
        self.engine.find(name, None).submit(found)
        return found

    @rule(name=st.sampled_from(NAMES), kind=st.sampled_from(("unknown", "unreadable", "gone")))
    def break_and_put_back(self, name: str, kind: str) -> None:
        """A load between fault and repair fails, and one after the repair takes the fault out of the index."""
        load = [Asked(name, "load", frozenset())]
        if kind == "gone":
            self.remove(name)
        else:
            self.write(name, kind, frozenset([1]))
        self.operate(load)
        self.put_back(name)
        self.operate(load)

    # What must hold

    async def compare(self) -> None:
        for name, expected in self.expected.items():
            self.compare_look_up(name, expected)
        await until(lambda: all(not entry.unloading for entry in self.manager.entries.values()))
        listing = asyncio.get_running_loop().create_future()
        self.engine.refresh_index(listing.set_result)
        await listing
        self.listed = frozenset(name for name in NAMES if self.expected[name].lies is not None)
        index = {f"{row['name']}:{row.get('version', '')}": shown(row) for row in self.engine.index(False)}
        assert index == {k: v for name in NAMES for k, v in self.expected[name].rows(name).items()}
        failed = [e for e in self.expected.values() if e.has_problem or FAILED in e.versions.values()]
        assert self.engine.is_ready() == (not failed), self.engine.not_ready()

    def compare_look_up(self, name: str, expected: Expected) -> None:
        """Right after the operations, while earlier copies may still end."""
        assert self.engine.is_model_ready(name, None) == expected.serves
        if not expected.serves:
            with pytest.raises(NotFoundError):
                self.engine.find(name, None)
            return
        ready = {version for version, state in expected.versions.items() if state == READY}
        serving = self.engine.find(name, None)
        assert serving.version == max(ready)
        loads, before = self.seen.get(name, (-1, None))
        assert (serving is before) == (expected.loads == loads)
        self.seen[name] = expected.loads, serving
        found = [model for model in self.engine.loaded_models() if model.name == name]
        assert {model.version for model in found} == ready
        assert {model.spec.parameters["tag"] for model in found} == {str(expected.tag)}
        assert {model.spec.instance_count for model in found} == {expected.count}

    @invariant()
    def no_folder_without_a_model(self) -> None:
        """Whatever a request brought is gone, or a model was loaded from it."""
        held = {v.folder for e in self.manager.entries.values() for v in e.versions.values() if v.folder is not None}
        assert all(folder.path.is_dir() for folder in held)
        assert len(list(Path(tempfile.gettempdir()).glob("naiad-model-*"))) == len(held)


MODEL_PY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x)]) for x in inputs]
"""


class ProcessSequences(Sequences):
    """The same with models in processes, which are killed now and then."""

    backend = "python"

    def put(self, name: str, lies: Lies) -> None:
        super().put(name, lies)
        for version in lies.versions:
            (self.folder / name / str(version) / "model.py").write_text(MODEL_PY)
            os.utime(self.folder / name / str(version) / "model.py", ns=(0, lies.tag))

    @rule(name=st.sampled_from(NAMES))
    def kill(self, name: str) -> None:
        """A process ends: it comes back by itself if its files are there, and the states stay as they are."""
        expected = self.expected[name]
        ready = [version for version, state in expected.versions.items() if state == READY]
        was_removed = expected.files is not None and not all(
            (self.folder / name / str(version) / "model.py").exists() for version in ready
        )
        if expected.serves and not was_removed:
            self.run(self.kill_and_wait(name))

    async def kill_and_wait(self, name: str) -> None:
        model = self.engine.find(name, None)
        for instance in model.instances:
            if instance.pid:
                os.kill(instance.pid, signal.SIGKILL)
                await until(lambda: bool(model.problem))
                assert not self.engine.is_ready()
        await until(lambda: not model.problem)
        caller = self.caller(name)
        await asyncio.wait_for(caller.done.wait(), 10)
        assert [error for _, error in caller.answers] == [None]
        await self.compare()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "examples", "steps"),
    [
        pytest.param(Sequences, 80, 40, id="threads"),
        pytest.param(ProcessSequences, 8, 10, id="processes"),
    ],
)
@pytest.mark.timeout(600)
def test_any_sequence_of_operations(
    machine: type[Sequences], examples: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=slow),
    )
    assert not list(temporary.iterdir())

"""Framework models in processes of their own and in shared ones: what may happen there, and what must not follow."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from naiad.errors import BackendError, NaiadError, UnavailableError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.worker.channel import WorkerChannel
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.lifecycle.state.states import ModelState
from naiad.testing import wait_until
from naiad.worker.ipc.frames import EXECUTE, RELEASE
from support import event_loops
from support.child_processes import children
from support.config_texts import parameter
from support.event_loops import until
from support.framework_models import CONFIG, WAYS, install, memory_of, write_rowdy
from support.noted_requests import submit
from support.worker_frames import payloads_by_kind
from support.worker_models import Caller, loading, open_files, process_of

BATCHING = "dynamic_batching { max_queue_delay_microseconds: 20000 }\n"
CRASH, FAIL, SLEEP, EXIT, ABORT, NO_MEMORY, LAST_WORD, NOT_UTF8 = 101, 102, 103, 104, 105, 106, 107, 108
Test = Callable[[ModelManager], Awaitable[object]]


@pytest.fixture(autouse=True)
def rowdy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "rowdy", monkeypatch)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def play(repository: Path, test: Test, **settings: str) -> None:
    """Serve the repository in this process and run a test against it."""
    manager = ModelManager(LoadSettings(lambda backend: settings, cores=1), 2, is_explicit=True)
    event_loops.play(loading(manager, repository), test)


def loaded(manager: ModelManager, name: str = "m") -> LoadedModel:
    """A model that must be ready."""
    entry = manager.entries[name]
    assert entry.problem is None, entry.problem
    (version,) = entry.versions.values()
    assert version.state is ModelState.READY, version.reason
    assert version.model is not None
    return version.model


def reason(manager: ModelManager, name: str = "m") -> str:
    """Why a model is not there."""
    (version,) = manager.entries[name].versions.values()
    assert version.state is ModelState.UNAVAILABLE
    return version.reason


async def ask(model: LoadedModel, *values: float) -> list[float]:
    """One request; its output."""
    caller = Caller(np.array(values, np.float32))
    submit(model, caller)
    return [float(v) for v in (await caller.outputs())["y"].ravel()]


async def error_of(model: LoadedModel, what: float) -> NaiadError:
    """The error that an input leads to."""
    caller = Caller(what)
    submit(model, caller)
    return await caller.error()


def is_serving(model: LoadedModel) -> bool:
    """Whether every instance has a process."""
    return all(i.is_up for i in model.instances)


def is_stopped(process: psutil.Process) -> bool:
    """Whether all its threads have taken note of the signal."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return all((task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks)


# Requests


def test_requests_that_share_a_batch_get_their_own_rows(repository: Path, way: str) -> None:
    write_rowdy(repository, way, more=BATCHING)

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        callers = [Caller(float(n)) for n in range(8)]
        submit(model, *callers)
        assert [(await c.outputs())["y"].tolist() for c in callers] == [[[2.0 * n]] for n in range(8)]
        assert model.statistics.execution_count == 1

    play(repository, test)


def test_a_bad_input_costs_only_its_own_request(repository: Path, way: str) -> None:
    write_rowdy(repository, way, more=BATCHING)

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        callers = [Caller(float(n)) for n in (1, FAIL, 2, NO_MEMORY)]
        submit(model, *callers)
        assert (await callers[0].outputs())["y"].tolist() == [[2.0]]
        assert (await callers[2].outputs())["y"].tolist() == [[4.0]]
        first, second = await callers[1].error(), await callers[3].error()
        assert type(first) is BackendError and str(first) == "this input is not liked"
        assert str(second) == "model 'm' failed: MemoryError: no memory for this input"
        assert await ask(model, 5) == [10]

    play(repository, test)


def test_failures_with_large_tensors_hold_no_memory(repository: Path) -> None:
    write_rowdy(repository, "process")

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        for _ in range(30):
            caller = Caller(np.full(100_000, FAIL, np.float32))
            submit(model, caller)
            assert str(await caller.error()) == "this input is not liked"
        maps = Path(f"/proc/{process_of(model).pid}/maps").read_text()
        assert maps.count("memfd:naiad") < 5

    play(repository, test)


def test_what_cannot_be_sent_is_an_error_of_its_request(repository: Path, way: str) -> None:
    text_output = CONFIG.replace('"y" data_type: TYPE_FP32', '"y" data_type: TYPE_STRING')
    write_rowdy(repository, way, more=parameter("texts", "yes"), config=text_output)
    write_rowdy(repository, way, "other")

    async def test(manager: ModelManager) -> None:
        before = children()
        error = await error_of(loaded(manager), 1)
        assert type(error) is BackendError and "the outputs of model 'm' cannot be sent: TypeError" in str(error)
        assert str(await error_of(loaded(manager, "other"), NOT_UTF8)) == "not UTF-8: ?"
        assert children() == before

    play(repository, test)


@pytest.mark.slow
def test_large_tensors_and_many_shapes(repository: Path, way: str) -> None:
    write_rowdy(repository, way, more=BATCHING)

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        for size in (0, 1, 1000, 100_000, 1_000_000, 3):
            row = np.arange(size, dtype=np.float32) + 200
            callers = [Caller(row + n) for n in range(3)]
            submit(model, *callers)
            for n, caller in enumerate(callers):
                assert np.array_equal((await caller.outputs())["y"], [(row + n) * 2])

    play(repository, test)


def test_what_releases_outputs_goes_with_the_next_batch(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rowdy(repository, "process")
    sent: list[list[int]] = []
    send = WorkerChannel.send

    def noted(channel: WorkerChannel, data: bytes, descriptor: int = -1) -> None:
        sent.append(list(payloads_by_kind(data)))
        send(channel, data, descriptor)

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        monkeypatch.setattr(WorkerChannel, "send", noted)
        for n in range(4):
            assert (await ask(model, n, *range(60_000)))[-1] == 2 * 59_999

    play(repository, test)
    batches = [kinds for kinds in sent if EXECUTE in kinds]
    assert len(batches) == 4
    assert all(kinds[0] == RELEASE for kinds in batches[1:])


@pytest.mark.slow
def test_more_shapes_than_are_remembered(repository: Path) -> None:
    write_rowdy(repository, "process")

    async def test(manager: ModelManager) -> None:
        for size in range(1, 2200):
            assert len(await ask(loaded(manager), *range(size))) == size

    play(repository, test)


def test_any_id_will_do(repository: Path, way: str) -> None:
    write_rowdy(repository, way)

    async def test(manager: ModelManager) -> None:
        caller = Caller(1.0, id="é" * 70_000)
        submit(loaded(manager), caller)
        assert (await caller.outputs())["y"].tolist() == [[2.0]]

    play(repository, test)


# Processes


@pytest.mark.slow
def test_every_instance_has_a_process_of_its_own(repository: Path) -> None:
    write_rowdy(repository, "process", config=CONFIG.replace("count: 1", "count: 3"))

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        assert len({process_of(model, n).pid for n in range(3)}) == len(children()) == 3
        # Whoever lists processes sees which is which.
        names = [process_of(model, n).cmdline()[-1] for n in range(3)]
        # The first one has completed the configuration of the version.
        assert names == ["m_1", "m_0_1", "m_0_2"]

    play(repository, test)


def test_a_shared_process_is_one_for_all_instances_of_several_models(repository: Path) -> None:
    for name in "abc":
        write_rowdy(repository, "shared", name, config=CONFIG.replace("count: 1", "count: 2"))

    async def test(manager: ModelManager) -> None:
        for name in "abc":
            assert await ask(loaded(manager, name), 3) == [6]
        numbers = {process_of(loaded(manager, name), n).pid for name in "abc" for n in range(2)}
        assert numbers == set(children()) and len(numbers) == 1

    play(repository, test)


@pytest.mark.slow
def test_groups_have_a_shared_process_each(repository: Path) -> None:
    for name, way in (("a", "shared:one"), ("b", "shared:one"), ("c", "shared:two"), ("d", "shared")):
        write_rowdy(repository, way, name)

    async def test(manager: ModelManager) -> None:
        a, b, c, d = (process_of(loaded(manager, name)).pid for name in "abcd")
        assert a == b and len({a, c, d}) == len(children()) == 3

    play(repository, test)


@pytest.mark.slow
def test_a_shared_process_ends_with_its_last_instance(repository: Path) -> None:
    write_rowdy(repository, "shared", "a", parameter("megabytes", 100))
    write_rowdy(repository, "shared", "b")

    async def test(manager: ModelManager) -> None:
        first, second = loaded(manager, "a"), loaded(manager, "b")
        process = process_of(first).pid
        with_both = memory_of(process)
        await manager.unload_model("a")
        await until(lambda: with_both - memory_of(process) > 95 << 20)
        assert await ask(second, 3) == [6]
        await manager.unload_model("b")
        await until(lambda: children() == [])

    play(repository, test)


@pytest.mark.slow
def test_what_a_backend_logs_and_prints_reaches_the_log(
    repository: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_rowdy(repository, way)

    async def test(manager: ModelManager) -> None:
        await until(lambda: "model 'm': rowdy speaks" in caplog.text)
        await error_of(loaded(manager), LAST_WORD)
        await until(lambda: "a last word" in caplog.text)
        await until(lambda: is_serving(loaded(manager)))

    play(repository, test)


# Death


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "how"), [(CRASH, "SIGSEGV"), (EXIT, "exit code 3"), (ABORT, "SIGABRT"), (LAST_WORD, "a last word")]
)
def test_a_crash_stays_in_the_process(repository: Path, way: str, what: int, how: str) -> None:
    write_rowdy(repository, way)
    write_rowdy(repository, "thread", "other")

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        error = await error_of(model, what)
        assert type(error) is UnavailableError and error.retryable
        assert "Stub process 'm_0_0' is not healthy. It has ended: " in str(error) and how in str(error)
        assert await ask(loaded(manager, "other"), 3) == [6]
        await until(lambda: is_serving(model))
        assert await ask(model, 4) == [8]

    play(repository, test)


@pytest.mark.slow
def test_a_killed_process_fails_what_it_held_and_comes_back(repository: Path, way: str) -> None:
    write_rowdy(repository, way, more=BATCHING)

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        held = [Caller(float(n)) for n in (SLEEP, 1, 2)]
        submit(model, *held)
        await until(lambda: not any(i.is_idle for i in model.instances))
        queued = Caller(5.0)
        submit(model, queued)
        process = process_of(model)
        process.kill()
        for caller in held:
            error = await caller.error()
            assert isinstance(error, UnavailableError) and "SIGKILL" in str(error)
        assert (await queued.outputs())["y"].tolist() == [[10.0]]
        assert process_of(model).pid != process.pid
        assert model.in_flight == 0

    play(repository, test)


@pytest.mark.slow
def test_all_instances_of_a_shared_process_come_back_into_one(repository: Path) -> None:
    for name in "abc":
        write_rowdy(repository, "shared", name)

    async def test(manager: ModelManager) -> None:
        models = [loaded(manager, name) for name in "abc"]
        for _ in range(2):
            before = process_of(models[0]).pid
            held = [Caller(float(SLEEP)) for _ in models]
            for model, caller in zip(models, held, strict=True):
                submit(model, caller)
            os.kill(before, signal.SIGKILL)
            for caller in held:
                assert isinstance(await caller.error(), UnavailableError)
            await until(lambda: all(map(is_serving, models)))
            numbers = {process_of(model).pid for model in models}
            assert len(numbers) == 1 and numbers == set(children()) and before not in numbers
            assert [await ask(model, 1) for model in models] == [[2]] * 3

    play(repository, test)


@pytest.mark.slow
def test_a_stopped_process_is_noticed_and_replaced(repository: Path, way: str) -> None:
    write_rowdy(repository, way)

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        process = process_of(model)
        process.suspend()
        await until(lambda: is_stopped(process))
        error = await error_of(model, 1)
        assert "it gave no sign of life for 4 s (--backend-config=rowdy,stub-timeout-seconds=N)" in str(error)
        await until(lambda: is_serving(model))
        assert await ask(model, 1) == [2]

    play(repository, test, **{"stub-timeout-seconds": "4"})


@pytest.mark.slow
def test_one_bad_neighbour_in_the_batch_that_crashes(repository: Path) -> None:
    """All requests of the batch fail: which of them it was is not known. Another try helps those that are well."""
    write_rowdy(repository, "process", more=BATCHING)

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        callers = [Caller(float(n)) for n in (1, CRASH)]
        submit(model, *callers)
        assert all([isinstance(await c.error(), UnavailableError) for c in callers])
        await until(lambda: is_serving(model))
        assert await ask(model, 1) == [2]

    play(repository, test)


# Loading


@pytest.mark.parametrize(
    ("told", "text"), [("fail", "this model is not liked"), ("raise", "ValueError: something unforeseen")]
)
def test_a_model_that_does_not_load_says_why_as_in_a_thread(repository: Path, way: str, told: str, text: str) -> None:
    write_rowdy(repository, way, more=parameter("start", told))
    write_rowdy(repository, "thread", "t", more=parameter("start", told))

    async def test(manager: ModelManager) -> None:
        assert reason(manager) == reason(manager, "t") == f"Internal: {text}"

    play(repository, test)


def test_a_crash_while_loading_is_told(repository: Path, way: str) -> None:
    write_rowdy(repository, way, more=parameter("start", "crash"))

    async def test(manager: ModelManager) -> None:
        assert " is not healthy. It ended while it started: killed by SIGSEGV" in reason(manager)
        assert children() == []

    play(repository, test)


@pytest.mark.slow
def test_a_crash_while_loading_fails_its_own_model_alone(repository: Path) -> None:
    for name in "abc":
        write_rowdy(repository, "shared", name)
    for name in "xy":
        write_rowdy(repository, "shared", name, parameter("start", "crash"))

    async def test(manager: ModelManager) -> None:
        for name in "xy":
            assert "SIGSEGV" in reason(manager, name)
        await until(lambda: all(is_serving(loaded(manager, name)) for name in "abc"))
        assert len(children()) == 1
        assert [await ask(loaded(manager, name), 1) for name in "abc"] == [[2]] * 3

    play(repository, test)


def test_the_configuration_is_completed_in_the_process(repository: Path, way: str) -> None:
    write_rowdy(repository, way, config='backend: "rowdy"\nmax_batch_size: 4\n')

    async def test(manager: ModelManager) -> None:
        model = loaded(manager)
        assert model.spec.inputs["x"].dims == (-1,)
        assert await ask(model, 3) == [6]

    play(repository, test)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of all processes that are started."""
    found: list[int] = []
    begin: Any = subprocess.Popen.__init__

    def noted(self: Any, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        found.append(self.pid)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    return found


def test_the_process_that_completed_the_configuration_is_the_first_instance(
    repository: Path, way: str, begun: list[int]
) -> None:
    write_rowdy(repository, way)

    async def test(manager: ModelManager) -> None:
        assert begun == [process_of(loaded(manager)).pid]

    play(repository, test)


def test_a_model_that_does_not_load_is_tried_once(repository: Path, way: str, begun: list[int]) -> None:
    write_rowdy(repository, way, more=parameter("start", "fail"))

    async def test(manager: ModelManager) -> None:
        assert reason(manager) and len(begun) == 1

    play(repository, test)


@pytest.mark.slow
def test_nothing_is_left_of_models_that_come_and_go(repository: Path, way: str) -> None:
    write_rowdy(repository, way, "m")
    write_rowdy(repository, way, "broken", parameter("start", "fail"))

    async def test(manager: ModelManager) -> None:
        assert await ask(loaded(manager), *range(20_000)) != []

    play(repository, test)
    before = Counter(open_files())
    for _ in range(3):
        play(repository, test)
    # The output of a process is closed by the thread that reads it, once it has read the end.
    wait_until(lambda: not Counter(open_files()) - before, 20, f"no files are open beside {before}")

"""Without batching the next request waits in the only process of a framework's model, which begins with it at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from naiad.errors import BackendError, CancelledError, UnavailableError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.testing import wait_until
from support import event_loops
from support.event_loops import WAIT_S, until
from support.framework_models import WAYS, install, write_rowdy
from support.noted_requests import submit
from support.worker_models import Caller, loading, mapped_segments, process_of

Test = Callable[[LoadedModel], Awaitable[object]]
FAIL = 102


@pytest.fixture(name="rowdy", autouse=True)
def _rowdy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "rowdy"
    install(folder, monkeypatch)
    return folder


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def play(repository: Path, way: str, test: Test) -> None:
    """Load a model whose instance runs that way, and run a test against it."""
    write_rowdy(repository, way)
    manager = ModelManager(LoadSettings(lambda backend: {}, cores=1), 2, is_explicit=True)

    async def run(manager: ModelManager) -> None:
        (version,) = manager.entries["m"].versions.values()
        assert version.model is not None, version.reason
        await test(version.model)
        assert version.model.in_flight == version.model.statistics.pending == 0

    event_loops.play(loading(manager, repository), run)


def value(n: int, size: int = 1) -> Caller:
    return Caller(np.full(size, n, np.float32))


async def doubled(caller: Caller) -> float:
    found = (await caller.outputs())["y"]
    assert len(np.unique(found)) == 1
    return float(found.flat[0])


def test_the_next_request_begins_without_the_loop(tmp_path: Path, rowdy: Path, way: str) -> None:
    async def test(model: LoadedModel) -> None:
        callers = [value(n) for n in (1001, 1002, 1003)]
        submit(model, *callers)
        await until((rowdy / "begun-1001").exists)
        assert model.statistics.pending == 2
        (rowdy / "go").touch()
        # The loop does nothing meanwhile.
        wait_until((rowdy / "begun-1002").exists, WAIT_S, "the second request begins")
        assert not (rowdy / "begun-1003").exists()
        assert [await doubled(caller) for caller in callers] == [2002, 2004, 2006]

    play(tmp_path / "models", way, test)


def test_a_failed_run_costs_only_its_own_request(tmp_path: Path, rowdy: Path, way: str) -> None:
    async def test(model: LoadedModel) -> None:
        callers = [value(n) for n in (1001, FAIL, 3, FAIL, 4)]
        submit(model, *callers)
        await until((rowdy / "begun-1001").exists)
        (rowdy / "go").touch()
        assert [await doubled(callers[n]) for n in (0, 2, 4)] == [2002, 6, 8]
        assert [type(await callers[n].error()) for n in (1, 3)] == [BackendError, BackendError]

    play(tmp_path / "models", way, test)


def test_a_request_behind_one_whose_process_is_killed_runs_in_the_next(tmp_path: Path, rowdy: Path, way: str) -> None:
    async def test(model: LoadedModel) -> None:
        callers = [value(n) for n in (1001, 2, 3)]
        submit(model, *callers)
        await until((rowdy / "begun-1001").exists)
        process_of(model).kill()
        assert isinstance(await callers[0].error(), UnavailableError)
        assert [await doubled(caller) for caller in callers[1:]] == [4, 6]

    play(tmp_path / "models", way, test)


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "in_a_segment"])
def test_a_caller_that_leaves_while_its_request_waits_in_the_process(
    tmp_path: Path, rowdy: Path, way: str, size: int
) -> None:
    async def test(model: LoadedModel) -> None:
        callers = [value(n, size) for n in (1001, 1002, 1003, 1004)]
        submit(model, *callers)
        await until((rowdy / "begun-1001").exists)
        for caller in callers[1:3]:
            model.cancel(caller)
            assert isinstance(await caller.error(), CancelledError)
        (rowdy / "go").touch()
        assert [await doubled(callers[n]) for n in (0, 3)] == [2002, 2008]
        assert not (rowdy / "begun-1002").exists()

    play(tmp_path / "models", way, test)


def test_the_memory_of_what_a_process_does_not_run_is_used_again(tmp_path: Path, rowdy: Path) -> None:
    async def test(model: LoadedModel) -> None:
        mapped = []
        for n in range(1, 21):
            (rowdy / "go").unlink(missing_ok=True)
            callers = [value(1000 + n, 100_000), value(2000 + n, 100_000)]
            submit(model, *callers)
            await until((rowdy / f"begun-{1000 + n}").exists)
            model.cancel(callers[1])
            (rowdy / "go").touch()
            await callers[0].outputs()
            mapped.append(mapped_segments())
        assert not list(rowdy.glob("begun-2*"))
        # They come and go by a few; what is lost would add up.
        assert mapped[-1] <= mapped[3] + 4

    play(tmp_path / "models", "process", test)

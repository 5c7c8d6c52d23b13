"""What the contract of framework backends asks of forests, for each format; ``test_fil.py`` has it for XGBoost's JSON.

A forest has one input of numbers and one output, FP32 both, with fixed names. So there are no other datatypes, texts,
scalars, odd names or ragged shapes to keep, and a forest fails for no row. What does fail is a model of scikit-learn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("treelite", reason="the extra fil is not installed")
pytest.importorskip("xgboost", reason="xgboost is not installed")
pytest.importorskip("lightgbm", reason="lightgbm is not installed")
pytest.importorskip("skops.io", reason="the extra sklearn is not installed")

from naiad.testing import HttpResponse, RunningServer, server_environment, serving, wait_until, write_model
from support.forest_formats import CASES, LINEAR, Compute, FormatCase, large_checkpoint
from support.framework import DAMAGES
from support.model_control import LOAD_S, load_error, unload

pytestmark = pytest.mark.slow

MIB = 1 << 20
TREES = 8000
"""Of 250 nodes: more than 100 MiB."""


class Forests:
    """A server with a model of each format, and what the libraries compute."""

    def __init__(self, server: RunningServer, folder: Path, mode: str, computed: dict[str, Compute]) -> None:
        self.server = server
        self.folder = folder
        self.mode = mode
        self.computed = computed

    def unload(self, model: str, processes: int) -> None:
        """Unload a model, and wait until so many processes are left."""
        unload(self.server, model)
        wait_until(lambda: len(self.processes()) == processes, LOAD_S, "its process has ended")

    def ask(self, model: str, rows: np.ndarray[Any, Any]) -> HttpResponse:
        return self.ask_as(model, rows, "FP32")

    def ask_as(self, model: str, rows: np.ndarray[Any, Any], datatype: str) -> HttpResponse:
        """A request with binary data: NaN is no JSON."""
        tensor = {"name": "input__0", "datatype": datatype, "shape": list(rows.shape)}
        head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": rows.nbytes}}]}).encode()
        headers = [("Inference-Header-Content-Length", str(len(head)))]
        return self.server.request("POST", f"/v2/models/{model}/infer", head + rows.tobytes(), headers)

    def answer(self, model: str, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        found = self.ask(model, rows)
        assert found.status == 200, found.body
        (output,) = found.json()["outputs"]
        assert (output["name"], output["datatype"]) == ("output__0", "FP32")
        return np.array(output["data"], np.float32).reshape(output["shape"])

    def processes(self) -> list[psutil.Process]:
        return list(psutil.Process(self.server.process.pid).children())

    def private_bytes(self) -> int:
        found = [psutil.Process(self.server.process.pid), *self.processes()]
        return sum(int(process.memory_full_info().uss) for process in found)


def write(folder: Path, name: str, case: FormatCase) -> Compute:
    """Write a model; what its library computes."""
    write_model(folder / "models", name, f'backend: "fil"\n{case.more}\ninstance_group {{ kind: KIND_CPU count: 1 }}\n')
    return case.write(folder / "models" / name / "1" / case.file)


@pytest.fixture(scope="module", params=["thread", "process"])
def forests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forests]:
    """All models load at once."""
    folder = tmp_path_factory.mktemp(request.param)
    computed = {name: write(folder, name, case) for name, case in {**CASES, "linear": LINEAR}.items()}
    settings = [f"--backend-config=fil,{text}" for text in (f"execution={request.param}", "allow-pickle=true")]
    arguments = ("--model-repository", folder / "models", "--model-control-mode=explicit", *settings)
    environment = {**server_environment(), "MALLOC_ARENA_MAX": "1"}
    with serving(folder / "log", *arguments, env=environment) as server:
        made = Forests(server, folder, request.param, computed)
        with ThreadPoolExecutor(len(computed)) as pool:
            assert list(pool.map(partial(load_error, server), computed)) == [""] * len(computed)
        yield made
        assert "Traceback" not in server.log, server.log


def rows_for(case: FormatCase, count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random rows, with NaN in some places where that is possible."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((count, case.columns)).astype(np.float32)
    if case.takes_nan and case.file not in ("model.skops", "model.joblib"):
        rows[::3, 0] = np.nan
    return rows


def assert_close(found: np.ndarray[Any, Any], expected: Any, width: int) -> None:
    """Equal to a millionth: treelite adds up the trees in another order."""
    assert found.dtype == np.float32 and found.shape == (len(found), width)
    np.testing.assert_allclose(found, np.asarray(expected).reshape(found.shape), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_completed_and_gives_what_its_library_computes(forests: Forests, name: str) -> None:
    case = CASES[name]
    config = forests.server.get(f"/v2/models/{name}/config").json()
    assert [t["dims"] for t in (*config["input"], *config["output"])] == [[case.columns], [case.width]]
    assert config["max_batch_size"] == 1024
    for count in (1, 8, 100):
        rows = rows_for(case, count)
        assert_close(forests.answer(name, rows), forests.computed[name](rows), case.width)


@pytest.mark.parametrize("name", CASES)
def test_each_request_gets_its_own_rows(forests: Forests, name: str) -> None:
    case = CASES[name]
    given = [rows_for(case, 1 + n % 3, n) for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda rows: forests.answer(name, rows), given))
    for rows, answer in zip(given, found, strict=True):
        assert_close(answer, forests.computed[name](rows), case.width)


@pytest.mark.parametrize("name", CASES)
def test_other_shapes_and_datatypes_are_refused(forests: Forests, name: str) -> None:
    case = CASES[name]
    for shape in ((1, case.columns + 1), (case.columns,), (0, case.columns), (1025, case.columns)):
        assert forests.ask(name, np.zeros(shape, np.float32)).status == 400, shape
    assert forests.ask_as(name, np.zeros((1, case.columns), np.float64), "FP64").status == 400
    rows = rows_for(case, 1)
    assert_close(forests.answer(name, rows), forests.computed[name](rows), case.width)


@pytest.mark.parametrize("name", CASES)
def test_files_that_do_not_load(forests: Forests, name: str) -> None:
    """In a process, where each attempt starts one, it is cut short alone."""
    case = CASES[name]
    before = len(forests.processes())
    for damage in DAMAGES if forests.mode == "thread" else ("cut",):
        model = f"{name}_{damage}"
        write(forests.folder, model, case)
        path = forests.folder / "models" / model / "1" / case.file
        (path.parent / "note.txt").write_text("not a model")
        DAMAGES[damage](path)
        # A folder without a model does not say which format is missing.
        assert str(path.parent if damage == "missing" else path) in load_error(forests.server, model), damage
    wait_until(lambda: len(forests.processes()) == before, LOAD_S, "no process is left")
    rows = rows_for(case, 2)
    assert_close(forests.answer(name, rows), forests.computed[name](rows), case.width)


def test_a_model_that_fails_in_every_third_run(forests: Forests) -> None:
    processes = forests.processes()
    for n in range(30):
        rows = rows_for(LINEAR, 2, n)
        if n % 3 == 2:
            rows[1, 1] = np.nan
            answer = forests.ask("linear", rows)
            assert answer.status == 500 and "fil: ValueError: Input X contains NaN" in answer.error, answer.body
        else:
            assert_close(forests.answer("linear", rows), forests.computed["linear"](rows), 2)
    assert forests.processes() == processes, "no process was started again"


def test_an_unload_gives_the_memory_of_a_large_forest_back(forests: Forests) -> None:
    """In a process 95 %. A thread's allocator keeps what it likes, so the next load must find room in that."""
    name, before = "large", len(forests.processes())
    write_model(forests.folder / "models", name, 'backend: "fil"\ninstance_group { kind: KIND_CPU count: 1 }\n')
    large_checkpoint(forests.folder / "models" / name / "1" / "checkpoint.tl", TREES)
    rows = rows_for(CASES["treelite"], 4)

    def reload() -> tuple[int, int]:
        assert load_error(forests.server, name) == ""
        assert forests.answer(name, rows).shape == (4, 1)
        loaded = forests.private_bytes()
        forests.unload(name, before)
        return loaded, forests.private_bytes()

    empty = forests.private_bytes()
    loaded, after = reload()
    taken, returned = loaded - empty, loaded - after
    assert taken > 60 * MIB
    if forests.mode == "process":
        assert returned >= 0.95 * taken, f"{returned / MIB:.1f} of {taken / MIB:.1f} MiB came back"
    else:
        assert reload()[0] <= 1.02 * loaded


@pytest.mark.parametrize("name", ["lightgbm", "skops"])
def test_reloads_do_not_grow_the_server(forests: Forests, name: str) -> None:
    """The contract has 100 of XGBoost's JSON; a reload of a checkpoint or in a process starts a process."""
    if forests.mode == "process":
        pytest.skip("the process of a model takes all its memory with it")
    rows = rows_for(CASES[name], 1)

    def reload() -> int:
        forests.unload(name, 0)
        assert load_error(forests.server, name) == ""
        forests.answer(name, rows)
        return int(psutil.Process(forests.server.process.pid).memory_info().rss)

    first = max(reload() for _ in range(10))
    last = min([reload() for _ in range(40)][-5:])
    assert last <= 1.02 * first, f"{first / MIB:.1f} MiB became {last / MIB:.1f} MiB"

"""Models of frameworks with an environment of their own: another version of the framework, beside the server's."""

from __future__ import annotations

import importlib
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc

from naiad.backends import placement
from naiad.backends.environments import interpreters
from naiad.backends.environments.environment import Environment, resolve
from naiad.backends.out_of_process import server_packages
from naiad.backends.out_of_process.model_environment import OLDEST, environment_request
from naiad.errors import BackendUnavailableError, ModelLoadError
from naiad.execution.worker.shared_process import SharedProcesses
from naiad.testing import wait_until, write_model
from support import onnx_models
from support.backend_contract import config, context
from support.config_texts import parameters
from support.python_environments import make_venv, write_script
from support.python_models import Client, client_of

pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
OWN = ".".join(map(str, sys.version_info[:2]))
OLD = "1.20.1"
"""A version of ONNX Runtime that is on PyPI and not the one of the tests."""
OLD_TREELITE = "4.6.1"
"""The same for treelite."""
OUT_OF_REACH = re.compile("Failed to establish|Connection|connection|Temporary failure|timed out|No matching distr")


def link_packages(venv: Path, *names: str) -> Path:
    """Give an environment some of the tests' packages, and no other."""
    (packages,) = venv.glob("lib/python*/site-packages")
    for name in names:
        found = Path(str(importlib.import_module(name).__file__)).parent
        for folder in (found, found.with_name(f"{name}.libs")):
            if folder.exists():
                (packages / folder.name).symlink_to(folder)
    return venv


def write_onnx(repository: Path, name: str, **parameters: str) -> Path:
    """A model Y = 2 X with one instance, whose other tensors' names and dims the graph completes; its folder."""
    onnx_models.double(repository / name / "1" / "model.onnx")
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}' for key, text in parameters.items()]
    text = "\n".join(['backend: "onnxruntime"', "instance_group { count: 1 kind: KIND_CPU }", *lines])
    (repository / name / "config.pbtxt").write_text(text + "\n")
    return repository / name


def ask(client: Client, model: str) -> list[float]:
    return [float(value) for value in client.infer(model, 1, 2, 3)[0]]


def python_of(process: psutil.Process) -> str:
    return str(process.cmdline()[0])


# Which environment it is


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with numpy and ONNX Runtime, and nothing else that a process of a model imports."""
    return link_packages(make_venv(tmp_path_factory.mktemp("linked") / "venv", numpy=False), "numpy", "onnxruntime")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, linked: Path) -> Iterator[Client]:
    """A server of a model in an environment of its own, and of one without."""
    folder = tmp_path_factory.mktemp("server")
    write_onnx(folder / "models", "own", execution="process", EXECUTION_ENV_PATH=str(linked))
    write_onnx(folder / "models", "plain", execution="process")
    with client_of(folder / "models", folder / "log") as found:
        yield found


def test_framework_and_numpy_are_all_that_an_environment_needs(client: Client, linked: Path) -> None:
    assert ask(client, "own") == ask(client, "plain") == [2, 4, 6]
    # Its process completed the configuration, too.
    assert client.grpc.get_model_config("own").config.max_batch_size == 4
    pythons = {python_of(child) for child in client.children()}
    assert pythons == {str(linked / "bin" / "python"), sys.executable}


def test_the_log_says_which_version_a_model_runs_on(client: Client, linked: Path) -> None:
    import onnxruntime

    log = client.server.log
    assert f"model 'own' runs on onnxruntime {onnxruntime.__version__}, Python {OWN}" in log
    assert f"({linked / 'bin' / 'python'})" in log
    assert "model 'plain' runs on" not in log


def test_a_process_that_is_killed_returns_in_its_environment(client: Client, linked: Path) -> None:
    own = str(linked / "bin" / "python")
    (killed,) = [child for child in client.children() if python_of(child) == own]
    killed.send_signal(signal.SIGKILL)
    wait_until(lambda: killed.pid not in {child.pid for child in client.children()}, 5, "the process is gone")
    wait_until(lambda: client.grpc.is_model_ready("own"), 20, "the model is ready again")
    assert ask(client, "own") == [2, 4, 6]
    assert own in {python_of(child) for child in client.children()}


# What does not fit


@pytest.mark.parametrize(
    ("given", "mode"), [({}, "thread"), ({"execution": "thread"}, "thread"), ({"execution": "shared:a"}, "shared")]
)
@pytest.mark.parametrize("name", ["environment", "python", "EXECUTION_ENV_PATH"])
def test_an_environment_needs_processes_of_its_own(tmp_path: Path, given: dict[str, str], mode: str, name: str) -> None:
    parameters = {**given, name: "x"}
    text = "\n".join(f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}' for k, v in parameters.items())
    with pytest.raises(ModelLoadError) as caught:
        placement.create("onnxruntime", context(tmp_path / "model.onnx"), config(text), SharedProcesses())
    assert str(caught.value) == (
        f"model 'm': parameter '{name}' is for a model whose instances are processes of their own, and its execution "
        f'is "{mode}"; write execution=process: parameters {{ key: "execution" value: {{ string_value: "process" }} }}'
    )


def refused(tmp_path: Path, backend: str, error: type[Exception], **parameters: str) -> str:
    """The text of the error for a model whose environment does not do."""
    request = environment_request(backend, context(tmp_path / "1" / "model.onnx"), parameters)
    assert request is not None
    with pytest.raises(error) as caught:
        request.resolved()
    return str(caught.value)


@pytest.mark.parametrize(("backend", "name"), [("pytorch", "torch"), ("keras", "keras")])
def test_a_missing_framework_is_named_with_the_place_where_it_belongs(
    tmp_path: Path, linked: Path, backend: str, name: str
) -> None:
    python = linked / "bin" / "python"
    text = refused(tmp_path, backend, BackendUnavailableError, EXECUTION_ENV_PATH=str(linked))
    assert f"needs the backend '{backend}', and its environment, Python {OWN}" in text
    assert text.endswith(f"has no {name}; add {name} to the environment {linked} (parameter 'EXECUTION_ENV_PATH')")
    text = refused(tmp_path, backend, BackendUnavailableError, python=str(python))
    assert text.endswith(f"has no {name}; add {name} to the Python of the parameter 'python': {python}")


@pytest.mark.slow
def test_a_framework_that_cannot_be_imported_is_a_matter_of_the_environment(tmp_path: Path) -> None:
    venv = link_packages(make_venv(tmp_path / "venv", numpy=False), "numpy")
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "onnxruntime.py").write_text("raise ImportError('libtest.so.7: cannot open shared object file')\n")
    folder = write_onnx(tmp_path / "models", "m", execution="process", EXECUTION_ENV_PATH=str(venv))
    made = placement.create(
        "onnxruntime",
        context(folder / "1" / "model.onnx"),
        parsed := config((folder / "config.pbtxt").read_text()),
        SharedProcesses(),
    )
    with pytest.raises(BackendUnavailableError) as caught:
        made.complete(parsed)
    made.close()
    text = str(caught.value)
    assert "onnxruntime cannot be imported (libtest.so.7: cannot open shared object file); add what it lacks" in text
    assert f"to the environment {venv} (parameter" in text
    assert "naiad[onnx]" not in text


def test_a_python_that_is_too_old_for_the_server_s_code(tmp_path: Path) -> None:
    answers = 'naiad-python:[[3, 9, 1], "{0}", true]', 'naiad-packages:[[3, 9, 1], "cpython-39", []]'
    path = tmp_path / "python"
    write_script(path, "\n".join(f"echo '{answer.format(path)}'" for answer in answers))
    text = refused(tmp_path, "onnxruntime", ModelLoadError, python=str(path))
    assert text == (
        f"model 'm': its environment has Python 3.9.1 ({path}), and the process of a model of 'onnxruntime' needs "
        f"{'.'.join(map(str, OLDEST))} or later"
    )


def test_the_server_lends_no_packages_to_another_python(tmp_path: Path) -> None:
    answers = (
        'naiad-python:[[3, 77, 1], "{0}", true]',
        'naiad-packages:[[3, 77, 1], "cpython-377", ["google.protobuf", "ml_dtypes"]]',
    )
    path = tmp_path / "python"
    write_script(path, "\n".join(f"echo '{answer.format(path)}'" for answer in answers))
    text = refused(tmp_path, "onnxruntime", ModelLoadError, python=str(path))
    assert text == (
        f"model 'm': its environment, Python 3.77.1 ({path}), has no protobuf and no ml-dtypes, and those of the "
        f"server are for its own Python {OWN}; run: {path} -m pip install protobuf ml-dtypes"
    )


def test_nothing_is_lent_but_what_is_missing() -> None:
    assert server_packages.folders_of(()) == ""
    folders = dict(entry.split("=") for entry in server_packages.folders_of(server_packages.DISTRIBUTIONS).split(":"))
    finder = server_packages.ServerPackageFinder(folders)
    assert finder.find_spec("onnxruntime") is None
    assert finder.find_spec("google.auth") is None
    around = finder.find_spec("google")
    assert around is not None and list(around.submodule_search_locations or ()) == []
    found = finder.find_spec("ml_dtypes")
    assert found is not None and found.origin == importlib.import_module("ml_dtypes").__file__


# Two versions at once


def another_python() -> str:
    """The version of another Python that can run Naiad, or the tests' own where there is none."""
    for version in ("3.12", "3.13", "3.11"):
        if version != OWN:
            try:
                interpreters.find(version, needs_numpy=False)
            except ModelLoadError:
                continue
            return version
    return OWN


def made_or_skipped(folder: Path, wish: dict[str, str], cache: Path, what: str) -> Environment:
    """The environment of a model, made before the server starts; the test is skipped where no index is in reach."""
    try:
        return resolve(folder, wish, {"environment-cache": str(cache)}, server_packages.DISTRIBUTIONS)
    except ModelLoadError as error:
        if OUT_OF_REACH.search(str(error)):
            pytest.skip(f"{what} cannot be installed: {error}")
        raise


@pytest.mark.slow
def test_two_versions_of_onnxruntime_serve_beside_each_other(tmp_path: Path) -> None:
    import onnxruntime

    python, cache = another_python(), tmp_path / "environments"
    wish = {"environment": "requirements.txt", "python": python}
    write_onnx(tmp_path / "models", "new")
    folder = write_onnx(tmp_path / "models", "old", execution="process", **wish)
    (folder / "requirements.txt").write_text(f"onnxruntime=={OLD}\n")
    made = made_or_skipped(folder, wish, cache, f"onnxruntime {OLD} for Python {python}")
    setting = f"--backend-config=onnxruntime,environment-cache={cache}"
    with client_of(tmp_path / "models", tmp_path / "log", setting) as client:
        for model in ("new", "old"):
            assert ask(client, model) == [2, 4, 6]
        # Made before, and not once more for the server.
        assert [path for path in cache.iterdir() if path.is_dir()] == [made.python.parent.parent]
        (child,) = client.children()
        assert python_of(child) == str(made.python)
        assert "onnxruntime_pybind" in Path(f"/proc/{client.server.process.pid}/maps").read_text()
        log = client.server.log
        assert f"model 'old' runs on onnxruntime {OLD}, Python {python}" in log
        assert onnxruntime.__version__ != OLD
        x = np.arange(12, dtype=np.float32).reshape(4, 3)
        assert client.infer_array("new", x).tolist() == client.infer_array("old", x).tolist()


@pytest.mark.slow
def test_two_versions_of_treelite_serve_beside_each_other(tmp_path: Path) -> None:
    """One file of LightGBM on both, and a checkpoint of the newer one, which is tried under the older one first."""
    treelite = pytest.importorskip("treelite", reason="the extra 'fil' is not installed")
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    from support import forest_models

    booster = forest_models.lightgbm_model("regression", forest_models.NUMBER)
    booster.save_model(tmp_path / "model.txt")
    treelite.frontend.load_lightgbm_model(tmp_path / "model.txt").serialize(tmp_path / "checkpoint.tl")
    wish = {"execution": "process", "environment": "$$TRITON_MODEL_DIRECTORY/../requirements.txt"}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "requirements.txt").write_text(f"treelite=={OLD_TREELITE}\n")
    for name, file, values in (
        ("new", "model.txt", {}),
        ("old", "model.txt", wish),
        ("old_checkpoint", "checkpoint.tl", wish),
    ):
        text = f'backend: "fil" {parameters(**values)} instance_group {{ count: 1 kind: KIND_CPU }}'
        write_model(tmp_path / "models", name, text, files={file: tmp_path / file})
    cache = tmp_path / "environments"
    made = made_or_skipped(tmp_path / "models" / "old", wish, cache, f"treelite {OLD_TREELITE}")
    with client_of(tmp_path / "models", tmp_path / "log", f"--backend-config=fil,environment-cache={cache}") as client:
        given = tritonclient.grpc.InferInput("input__0", forest_models.TESTED.shape, "FP32")
        given.set_data_from_numpy(forest_models.TESTED)
        for model in ("new", "old", "old_checkpoint"):
            found = client.grpc.infer(model, [given]).as_numpy("output__0")
            np.testing.assert_allclose(found[:, 0], booster.predict(forest_models.TESTED), rtol=1e-6, atol=1e-6)
        assert {python_of(child) for child in client.children()} == {str(made.python)}
        for model in ("old", "old_checkpoint"):
            assert f"model '{model}' runs on treelite {OLD_TREELITE}, Python {OWN}" in client.server.log
        assert "libtreelite" in Path(f"/proc/{client.server.process.pid}/maps").read_text()
        assert treelite.__version__ != OLD_TREELITE

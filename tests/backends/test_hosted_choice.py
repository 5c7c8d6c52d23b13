"""Which way a model is run: its parameter, the settings of its backend, the default; and what is refused."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from naiad.backend_api.backend import Backend
from naiad.backend_api.host_policy import HostPolicies
from naiad.backends import placement as choice
from naiad.backends.builtin.identity import IdentityBackend
from naiad.backends.builtin.repeat import RepeatBackend
from naiad.backends.builtin.square import SquareBackend
from naiad.backends.out_of_process.backend import OutOfProcessBackend
from naiad.backends.python.backend import PythonBackend
from naiad.backends.python.in_thread import PythonThreadBackend
from naiad.errors import BackendUnavailableError, ModelLoadError
from naiad.execution.worker.shared_process import SharedProcesses
from naiad.processes.affinity import Affinity
from support.backend_contract import config, context
from support.config_texts import parameter

BACKENDS_ON_THE_LOOP = (RepeatBackend, SquareBackend)


def create(tmp_path: Path, text: str = "", backend: str = "identity", **settings: str) -> Backend:
    at = context(tmp_path / "model.py", **settings)
    return choice.create(backend, at, config(text), SharedProcesses())


def execution(backend: Backend) -> Any:
    assert isinstance(backend, OutOfProcessBackend)
    return backend.execution


def test_nothing_said_is_a_thread(tmp_path: Path) -> None:
    assert isinstance(create(tmp_path), IdentityBackend)
    assert isinstance(create(tmp_path, parameter("execution", "thread")), IdentityBackend)


@pytest.mark.parametrize(
    ("text", "way", "group"),
    [("process", "process", ""), ("shared", "shared", ""), ("shared:big-ones_2.0", "shared", "big-ones_2.0")],
)
def test_a_parameter_or_a_setting_says_so(tmp_path: Path, text: str, way: str, group: str) -> None:
    for found in (create(tmp_path, parameter("execution", text)), create(tmp_path, execution=text)):
        assert execution(found) == choice.Execution(way, group)


PINNED = HostPolicies.of({"cpu": Affinity((0,)), "left": Affinity(node=0)})


def pinned(tmp_path: Path, backend: str, text: str = "", **settings: str) -> Backend:
    """A backend on a server where the policy ``cpu`` has a core."""
    at = replace(context(tmp_path / "model.py", **settings), policies=PINNED)
    return choice.create(backend, at, config(text), SharedProcesses())


def test_a_framework_with_one_pool_keeps_to_cores_in_a_process(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="the extra openvino is not installed")
    assert execution(pinned(tmp_path, "openvino")).mode == "process"
    assert execution(pinned(tmp_path, "openvino", parameter("execution", "process"))).mode == "process"
    # Memory alone, and frameworks whose threads belong to a model, need none.
    assert not isinstance(pinned(tmp_path, "openvino", 'instance_group { host_policy: "left" }'), OutOfProcessBackend)
    assert isinstance(pinned(tmp_path, "identity"), IdentityBackend)
    accelerated = "optimization { execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }"
    assert execution(pinned(tmp_path, "onnxruntime", accelerated)).mode == "process"


@pytest.mark.parametrize("way", ["thread", "shared"])
def test_a_framework_with_one_pool_and_another_execution_is_refused(tmp_path: Path, way: str) -> None:
    text = f"has the cores of host policy 'cpu' and execution \"{way}\", and openvino has one pool of threads"
    with pytest.raises(ModelLoadError, match=text):
        pinned(tmp_path, "openvino", parameter("execution", way))
    with pytest.raises(ModelLoadError, match=text):
        pinned(tmp_path, "openvino", execution=way)


def test_the_parameter_counts_before_the_setting(tmp_path: Path) -> None:
    assert isinstance(create(tmp_path, parameter("execution", "thread"), execution="process"), IdentityBackend)
    assert execution(create(tmp_path, parameter("execution", "shared"), execution="process")).mode == "shared"


@pytest.mark.parametrize("text", ["", "Process", "threads", "shared:", "shared:a b", "shared:" + "a" * 65, "process:a"])
def test_a_wrong_value_names_the_three(tmp_path: Path, text: str) -> None:
    expected = r'expected "thread", "process" or "shared"'
    with pytest.raises(ModelLoadError, match=rf"model 'm': parameter 'execution' is \"{text}\", {expected}"):
        create(tmp_path, parameter("execution", text))
    with pytest.raises(ModelLoadError, match=f"model 'm': backend config setting 'execution' .*{expected}"):
        create(tmp_path, execution=text)


def test_python_models_are_processes_whatever_the_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "naiad")
    for found in (
        create(tmp_path, parameter("execution", "process"), "python"),
        create(tmp_path, "", "python", execution="thread"),
    ):
        assert isinstance(found, PythonBackend)
    assert caplog.text == ""
    assert isinstance(create(tmp_path, "", "python", execution="shared"), PythonBackend)
    assert "execution=shared does not concern it" in caplog.text


def test_a_python_model_may_ask_for_threads_itself(tmp_path: Path) -> None:
    assert isinstance(create(tmp_path, parameter("execution", "thread"), "python"), PythonThreadBackend)
    with pytest.raises(ModelLoadError, match='expected "process" or nothing: the instances of this backend'):
        create(tmp_path, parameter("execution", "thread"), "iterative_sequence")


@pytest.mark.parametrize("text", ["shared", "shared:a", "threads"])
def test_python_models_cannot_be_anything_else(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelLoadError, match='expected "process", "thread" or nothing: each instance of a Python'):
        create(tmp_path, parameter("execution", text), "python")


@pytest.mark.parametrize("backend", ["repeat", "square"])
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("execution",), "parameter 'execution' is \"process\", expected nothing"),
        (("environment",), "parameter 'environment' is \"process\", expected nothing"),
        (
            ("execution", "environment"),
            "parameter 'execution' is \"process\" and parameter 'environment' is \"process\", expected neither",
        ),
    ],
)
def test_models_on_the_loop_of_the_server_stay_there(
    tmp_path: Path, backend: str, names: tuple[str, ...], words: str
) -> None:
    """One error says all that does not fit: a user who follows it needs no second load."""
    with pytest.raises(ModelLoadError) as caught:
        create(tmp_path, "".join(parameter(name, "process") for name in names), backend)
    assert str(caught.value) == (
        f"model 'm': {words}: the models of the backend '{backend}' run on the loop of the server, never in a process "
        "or an environment of their own"
    )
    for text in ("", parameter("execution", "thread")):
        assert isinstance(create(tmp_path, text, backend, execution="process"), BACKENDS_ON_THE_LOOP)


def test_an_unknown_backend_is_one_in_every_way(tmp_path: Path) -> None:
    for text in ("thread", "process"):
        with pytest.raises(BackendUnavailableError, match=r"unknown backend 'identit'; known are: .*did you mean"):
            create(tmp_path, parameter("execution", text), "identit", backend_directory=str(tmp_path))


def test_a_setting_that_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="'stub-timeout-seconds' is \"soon\", expected a whole number"):
        create(tmp_path, parameter("execution", "process"), stub_timeout_seconds="soon")

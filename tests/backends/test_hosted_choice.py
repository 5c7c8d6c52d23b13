"""Which way a model is run: its parameter, the settings of its backend, the default; and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from naiad.backend_api.backend import Backend
from naiad.backends import placement as choice
from naiad.backends.builtin.identity import IdentityBackend
from naiad.backends.out_of_process.backend import OutOfProcessBackend
from naiad.backends.python.backend import PythonBackend
from naiad.errors import BackendUnavailableError, ModelLoadError
from naiad.execution.worker.shared_process import SharedProcesses
from support.backend_contract import config, context


def create(tmp_path: Path, text: str = "", backend: str = "identity", **settings: str) -> Backend:
    at = context(tmp_path / "model.py", **settings)
    return choice.create(backend, at, config(text), SharedProcesses())


def parameter(value: str) -> str:
    return f'parameters {{ key: "execution" value {{ string_value: "{value}" }} }}'


def execution(backend: Backend) -> Any:
    assert isinstance(backend, OutOfProcessBackend)
    return backend._execution


def test_nothing_said_is_a_thread(tmp_path: Path) -> None:
    assert isinstance(create(tmp_path), IdentityBackend)
    assert isinstance(create(tmp_path, parameter("thread")), IdentityBackend)


@pytest.mark.parametrize(
    ("text", "way", "group"),
    [("process", "process", ""), ("shared", "shared", ""), ("shared:big-ones_2.0", "shared", "big-ones_2.0")],
)
def test_a_parameter_or_a_setting_says_so(tmp_path: Path, text: str, way: str, group: str) -> None:
    for found in (create(tmp_path, parameter(text)), create(tmp_path, execution=text)):
        assert execution(found) == choice.Execution(way, group)


def test_the_parameter_counts_before_the_setting(tmp_path: Path) -> None:
    assert isinstance(create(tmp_path, parameter("thread"), execution="process"), IdentityBackend)
    assert execution(create(tmp_path, parameter("shared"), execution="process")).mode == "shared"


@pytest.mark.parametrize("text", ["", "Process", "threads", "shared:", "shared:a b", "shared:" + "a" * 65, "process:a"])
def test_a_wrong_value_names_the_three(tmp_path: Path, text: str) -> None:
    expected = r'expected "thread", "process" or "shared"'
    with pytest.raises(ModelLoadError, match=rf"model 'm': parameter 'execution' is \"{text}\", {expected}"):
        create(tmp_path, parameter(text))
    with pytest.raises(ModelLoadError, match=f"model 'm': backend config setting 'execution' .*{expected}"):
        create(tmp_path, execution=text)


def test_python_models_are_processes_whatever_the_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "naiad")
    for found in (create(tmp_path, parameter("process"), "python"), create(tmp_path, "", "python", execution="thread")):
        assert isinstance(found, PythonBackend)
    assert caplog.text == ""
    assert isinstance(create(tmp_path, "", "python", execution="shared"), PythonBackend)
    assert "execution=shared does not concern it" in caplog.text


@pytest.mark.parametrize("text", ["thread", "shared", "shared:a"])
def test_python_models_cannot_be_anything_else(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelLoadError, match='expected "process" or nothing: each instance of a Python model is a'):
        create(tmp_path, parameter(text), "python")


def test_an_unknown_backend_is_one_in_every_way(tmp_path: Path) -> None:
    for text in ("thread", "process"):
        with pytest.raises(BackendUnavailableError, match=r"unknown backend 'identit'; known are: .*did you mean"):
            create(tmp_path, parameter(text), "identit", backend_directory=str(tmp_path))


def test_a_setting_that_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="'stub-timeout-seconds' is \"soon\", expected a whole number"):
        create(tmp_path, parameter("process"), stub_timeout_seconds="soon")

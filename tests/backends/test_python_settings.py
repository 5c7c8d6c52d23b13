"""Settings of Python models that are refused when the model loads, with texts that people look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.backends.python.backend import PythonBackend
from naiad.cli.check import run as check
from naiad.config.spec import InstanceGroupSpec
from naiad.testing import serving
from support.backend_contract import config, context
from support.python_models import DOUBLES, write_python_model


def refused(folder: Path, capsys: pytest.CaptureFixture[str], more: str, **settings: str) -> str:
    """What ``naiad check`` says about a Python model that would not load."""
    write_python_model(folder, "m", DOUBLES, more)
    given = {"python": {name.replace("_", "-"): value for name, value in settings.items()}}
    code = check((folder,), disable_auto_complete=False, model_config_name="", backend_config=given)
    assert code == 1
    return capsys.readouterr().out


def test_input_tensors_are_forced_to_the_cpu_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameter = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "maybe" } }'
    assert "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: 'maybe'" in refused(tmp_path, capsys, parameter)


def test_the_file_of_a_model_is_a_python_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(tmp_path, capsys, 'default_model_filename: "model.txt"')
    assert "Model name must end with '.py'. Model name is \"model.txt\"." in text


def test_the_file_of_a_model_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(tmp_path, capsys, 'default_model_filename: "other.py"')
    expected = f"Python model file not found in '{tmp_path / 'm' / '1' / 'other.py'}', found model.py there: rename it"
    assert f"Failed to preinitialize Python stub: {expected}" in text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("shm_default_byte_size", "1048575", "shm-default-byte-size can't be smaller than 1 MiB"),
        ("shm_growth_byte_size", "0", "shm-growth-byte-size=0: expected a whole number from 1 on"),
        ("thread_pool_size", "0", "thread-pool-size=0: expected a whole number from 1 on"),
        ("stub_timeout_seconds", "soon", "stub-timeout-seconds=soon: expected a whole number from 1 on"),
    ],
)
def test_numbers_out_of_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: str, text: str
) -> None:
    assert text in refused(tmp_path, capsys, "", **{name: value})


@pytest.mark.parametrize(("settings", "expected"), [({}, (3600, 30)), ({"stub-timeout-seconds": "7"}, (7, 7))])
def test_how_long_a_process_may_take_and_be_silent(
    tmp_path: Path, settings: dict[str, str], expected: tuple[int, int]
) -> None:
    # A model may load much in initialize: only what is said limits that.
    file = tmp_path / "1" / "model.py"
    file.parent.mkdir()
    file.write_text(DOUBLES)
    backend = PythonBackend(context(file, **settings))
    backend.config = config("")
    child = backend.worker_spec(InstanceGroupSpec("m", "KIND_CPU", 1), 0)
    assert (child.start_s, child.silence_s) == expected


def test_an_instance_is_told_the_number_of_its_gpu(tmp_path: Path) -> None:
    file = tmp_path / "1" / "model.py"
    file.parent.mkdir()
    file.write_text(DOUBLES)
    backend = PythonBackend(context(file))
    backend.config = config("")
    group = InstanceGroupSpec("m", "KIND_GPU", 4, gpus=(1, 3))
    told = [backend.worker_spec(group, index).load_command["args"] for index in range(4)]
    assert [args["model_instance_device_id"] for args in told] == ["1", "3", "1", "3"]
    assert {args["model_instance_kind"] for args in told} == {"GPU"}


SAYS_ENVIRONMENT = """
import json
class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
    def execute(self, requests):
        found = len(self.config["parameters"]["environment"]["string_value"])
        y = pb_utils.Tensor("Y", np.full((1, 1), found, np.float32))
        return [pb_utils.InferenceResponse([y]) for _ in requests]
"""


def test_an_environment_that_names_no_file_is_the_model_s_own(tmp_path: Path) -> None:
    parameter = 'parameters { key: "environment" value { string_value: "production" } }'
    write_python_model(tmp_path / "models", "m", SAYS_ENVIRONMENT, "max_batch_size: 8 " + parameter)
    request = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [0]}]}
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert server.infer("m", request).json()["outputs"][0]["data"] == [len("production")]
        assert "parameter 'environment' of model 'm' is \\\"production\\\", which names no file" in server.log


@pytest.mark.slow
def test_a_misspelt_parameter_is_a_warning(tmp_path: Path) -> None:
    """It may be the model's own, so it loads; of a limit that is not there somebody should know."""
    names = ("memory-limit", "execution_env_pth", "memory-limit-mb", "threshold")
    given = [f'parameters {{ key: "{name}" value {{ string_value: "900" }} }}' for name in names]
    write_python_model(tmp_path / "models", "m", DOUBLES, "\n".join(given))
    with serving(tmp_path / "log", tmp_path / "models") as server:
        text = "of model 'm' is left to the model; the server's own is called"
        assert f"'execution_env_pth' {text} 'EXECUTION_ENV_PATH'" in server.log
        assert f"'memory-limit' {text} 'memory-limit-mb'" in server.log
        assert server.log.count("is left to the model") == 2

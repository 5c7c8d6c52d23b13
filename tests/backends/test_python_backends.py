"""Python-based backends: one ``model.py`` in the folder of backends runs many models, whose folders hold data alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from naiad.backend_api.backend import BackendContext
from naiad.backends import registry
from naiad.backends.python.source import shared_source
from naiad.cli.check import run as check
from naiad.errors import BackendUnavailableError, ModelLoadError
from naiad.testing import serving
from support.backend_contract import config, context
from support.python_environments import make_venv, pack
from support.python_models import HEAD, Client, client_of

# Multiplies by a number in a file of the model, and says where it found itself.
SCALE = """
import json
import beside

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(8)
        return config

    def initialize(self, args):
        self.factor = json.load(open(os.path.join(pb_utils.get_model_dir(), "model.json")))["factor"]
        about = {"dir": pb_utils.get_model_dir(), "path": sys.path, "file": __file__, "args": args}
        with open(os.path.join(args["model_repository"], "about.json"), "w") as file:
            json.dump(about, file)

    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.float32(self.factor) * x)]) for x in found]
"""
REPEATS = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            sender = request.get_response_sender()
            for n in range(int(x.flat[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full_like(x, n))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TENSORS = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


def write_backend(folder: Path, name: str, source: str) -> Path:
    """A Python-based backend; its folder."""
    made = folder / name
    made.mkdir(parents=True)
    (made / "model.py").write_text(HEAD + source)
    return made


def write_data(repository: Path, name: str, text: str, **files: str) -> Path:
    """A model without code; its folder."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text)
    for file, content in files.items():
        (folder / "1" / file.replace("_", ".")).write_text(content)
    return folder


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backends")
    (write_backend(folder, "scale", SCALE) / "beside.py").write_text("")
    write_backend(folder, "repeats", REPEATS)
    return folder


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    write_data(folder, "twice", 'backend: "scale"', model_json='{"factor": 2}')
    write_data(folder, "thrice", 'backend: "scale" runtime: "model.py"', model_json='{"factor": 3}')
    # Neither the file that it names nor the one that lies there has any meaning.
    write_data(
        folder,
        "half",
        'backend: "scale" default_model_filename: "net.bin"',
        model_json='{"factor": 0.5}',
        model_py="raise RuntimeError('this file has no meaning')",
    )
    write_data(folder, "by_name.scale", "", model_json='{"factor": 10}')
    write_data(folder, "repeats", f'backend: "repeats" {TENSORS}')
    decoupled = "model_transaction_policy { decoupled: true }"
    write_data(folder, "repeats_by_file", f'backend: "repeats" {TENSORS} {decoupled}')
    return folder


@pytest.fixture(scope="module")
def client(repository: Path, backends: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    log = tmp_path_factory.mktemp("log") / "log"
    with client_of(repository, log, "--backend-directory", backends) as found:
        yield found


@pytest.mark.parametrize(("model", "factor"), [("twice", 2), ("thrice", 3), ("half", 0.5), ("by_name.scale", 10)])
def test_one_file_runs_many_models(client: Client, model: str, factor: float) -> None:
    assert client.infer(model, 4, 6).tolist() == [[4 * factor, 6 * factor]]


def test_what_the_backend_is_told(client: Client, repository: Path, backends: Path) -> None:
    found = json.loads((repository / "twice" / "about.json").read_text())
    assert found["dir"] == str(repository / "twice" / "1")
    assert found["file"] == str(backends / "scale" / "model.py")
    assert str(backends / "scale") in found["path"]
    # The folders of a model hold data, which no import may find.
    assert not any(path.startswith(str(repository)) for path in found["path"])
    arguments = found["args"]
    names = ("model_name", "model_version", "model_repository", "model_instance_name")
    assert [arguments[n] for n in names] == ["twice", "1", str(repository / "twice"), "twice_0"]
    told = json.loads(arguments["model_config"])
    assert (told["backend"], told["runtime"], told["max_batch_size"]) == ("scale", "model.py", 8)


def test_the_configuration_names_backend_and_runtime(client: Client) -> None:
    found = client.server.get("/v2/models/twice/config").json()
    assert [found[k] for k in ("backend", "runtime", "platform", "default_model_filename")] == [
        "scale",
        "model.py",
        "",
        "",
    ]
    assert found["instance_group"][0]["kind"] == "KIND_CPU"
    assert client.server.get("/v2/models/twice").json()["platform"] == "scale"


@pytest.mark.parametrize("model", ["repeats", "repeats_by_file"])
def test_a_backend_may_be_decoupled(client: Client, model: str) -> None:
    found: list[float] = []
    errors: list[Any] = []

    def take(result: Any, error: Any) -> None:
        if error is None:
            found.append(float(result.as_numpy("Y")[0]))
        else:
            errors.append(error)

    given = tritonclient.grpc.InferInput("X", (1,), "FP32")
    given.set_data_from_numpy(np.array([3], np.float32))
    with tritonclient.grpc.InferenceServerClient(client.server.grpc_url) as peer:
        peer.start_stream(take)
        peer.async_stream_infer(model, [given])
        peer.stop_stream()
    assert (found, errors) == ([0, 1, 2], [])


@pytest.mark.slow
def test_without_completion_the_file_says_it_all(tmp_path: Path, backends: Path) -> None:
    models = tmp_path / "models"
    full = 'backend: "scale" input { name: "X" data_type: TYPE_FP32 dims: -1 } '
    full += 'output { name: "Y" data_type: TYPE_FP32 dims: -1 }'
    write_data(models, "m", full, model_json='{"factor": 5}')
    arguments = ("--model-repository", models, "--backend-directory", backends, "--disable-auto-complete-config")
    with serving(tmp_path / "log", *arguments) as server:
        body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [2]}]}
        assert server.infer("m", body).json()["outputs"][0]["data"] == [10]
        assert server.get("/v2/models/m/config").json()["runtime"] == "model.py"


def checked(path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, dict[str, str]]) -> tuple[int, str]:
    """What ``naiad check`` gives back and prints."""
    code = check((path,), disable_auto_complete=False, model_config_name="", backend_config=settings)
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_naiad_check_loads_them(repository: Path, backends: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = checked(repository / "twice", capsys, {"": {"backend-directory": str(backends)}})
    assert code == 0, text
    assert 'runtime: "model.py"' in text
    code, text = checked(repository / "repeats_by_file", capsys, {"": {"backend-directory": "/nowhere"}})
    assert code == 1
    assert "needs an unknown backend 'repeats'" in text
    assert "there is no Python-based backend /nowhere/repeats/model.py either (--backend-directory)" in text
    # Whether it may be decoupled is up to a backend that nobody knows.
    assert "1 problem\n" in text


# Which file a name leads to


def at(tmp_path: Path, backends: Path | str) -> BackendContext:
    (tmp_path / "m" / "1").mkdir(parents=True, exist_ok=True)
    return context(tmp_path / "m" / "1" / "model.py", backend_directory=str(backends))


@pytest.mark.parametrize("name", ["../backends/scale", "..", ".", "a/b", "a\\b", "a\0b"])
def test_a_name_leads_nowhere_else(tmp_path: Path, backends: Path, name: str) -> None:
    with pytest.raises(BackendUnavailableError, match="needs an unknown backend"):
        registry.create(name, at(tmp_path, backends))


def test_a_backend_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    for name, text in (("vllm", "is not supported by this version"), ("mine", "needs an unknown backend")):
        with pytest.raises(BackendUnavailableError, match=text) as caught:
            registry.create(name, at(tmp_path, tmp_path))
        looked = f"there is no Python-based backend {tmp_path / name / 'model.py'} either (--backend-directory)"
        assert looked in str(caught.value)


def test_a_backend_of_the_reference_may_be_python_based(tmp_path: Path) -> None:
    write_backend(tmp_path / "b", "vllm", REPEATS)
    made = registry.create("vllm", at(tmp_path, tmp_path / "b"))
    made.close()


def test_own_backends_are_not_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_backend(tmp_path / "b", "identity", SCALE)
    with caplog.at_level(logging.WARNING, "naiad"):
        made = registry.create("identity", at(tmp_path, tmp_path / "b"))
    assert type(made).__name__ == "IdentityBackend"
    assert f"{tmp_path / 'b' / 'identity' / 'model.py'} is not used" in caplog.text
    assert "give its folder another name" in caplog.text


def test_the_settings_of_python_hold_for_python_based_backends(
    repository: Path, backends: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = checked(
        repository / "twice",
        capsys,
        {"": {"backend-directory": str(backends)}, "python": {"stub-timeout-seconds": "none"}, "scale": {"x": "y"}},
    )
    assert code == 1
    assert "python,stub-timeout-seconds=none: expected a whole number" in text


@pytest.mark.slow
def test_a_backend_that_cannot_be_loaded_names_its_file(tmp_path: Path) -> None:
    write_backend(tmp_path / "b", "broken", "raise ImportError('no such library')")
    write_data(tmp_path / "models", "m", f'backend: "broken" {TENSORS}')
    with serving(
        tmp_path / "log",
        *("--model-repository", tmp_path / "models", "--backend-directory", tmp_path / "b", "--exit-on-error=false"),
    ) as server:
        (row,) = server.index()
    assert "no such library" in row["reason"]
    assert str(tmp_path / "b" / "broken" / "model.py") in row["reason"]


# The environment of a backend


@pytest.mark.parametrize(
    ("files", "given", "expected"),
    [
        ((), {}, {}),
        (("pb_exec_env_model.py.tar.gz",), {}, {"EXECUTION_ENV_PATH": "pb_exec_env_model.py.tar.gz"}),
        # A file of requirements may be there for people to read.
        (("requirements.txt",), {}, {}),
        (
            ("pb_exec_env_model.py.tar.gz", "requirements.txt"),
            {},
            {"EXECUTION_ENV_PATH": "pb_exec_env_model.py.tar.gz"},
        ),
        (("pb_exec_env_model.py.tar.gz",), {"EXECUTION_ENV_PATH": "/mine"}, {}),
        (("pb_exec_env_model.py.tar.gz", "requirements.txt"), {"environment": "mine.txt"}, {}),
        (("pb_exec_env_model.py.tar.gz",), {"python": "3.9"}, {}),
    ],
)
def test_a_backend_brings_its_environment_unless_the_model_has_one(
    tmp_path: Path, files: tuple[str, ...], given: dict[str, str], expected: dict[str, str]
) -> None:
    folder = write_backend(tmp_path / "b", "x", SCALE)
    for name in files:
        (folder / name).write_text("")
    message = config('backend: "x"')
    for name, value in given.items():
        message.parameters[name].string_value = value
    shared_source(at(tmp_path, tmp_path / "b"), folder / "model.py").describe(message)
    found = {name: value.string_value for name, value in message.parameters.items()}
    assert found == given | {name: str(folder / file) for name, file in expected.items()}


@pytest.mark.slow
def test_the_packed_environment_beside_the_code_is_used(tmp_path: Path) -> None:
    folder = write_backend(tmp_path / "b", "packed", SCALE.replace("import beside", "import only_there"))
    venv = make_venv(tmp_path / "venv")
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "only_there.py").write_text("")
    pack(venv, folder / "pb_exec_env_model.py.tar.gz")
    write_data(tmp_path / "models", "m", 'backend: "packed"', model_json='{"factor": 7}')
    with client_of(tmp_path / "models", tmp_path / "log", "--backend-directory", tmp_path / "b") as client:
        assert client.infer("m", 2).tolist() == [[14]]


def test_a_source_needs_its_file(tmp_path: Path, backends: Path) -> None:
    with pytest.raises(ModelLoadError, match="Python model file not found"):
        shared_source(at(tmp_path, backends), backends / "gone" / "model.py")
    folders = replace(at(tmp_path, backends), version_directory=tmp_path / "m" / "1")
    found = shared_source(folders, backends / "scale" / "model.py")
    assert (found.model_directory, found.version_directory) == (tmp_path / "m", tmp_path / "m" / "1")

"""What is special about files of Keras: names, structures, safe mode, and the library below it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if find_spec("keras") is None or find_spec("torch") is None:
    pytest.skip("the extra keras, or torch for it, is not installed", allow_module_level=True)

from naiad.backends import registry
from naiad.errors import NaiadError
from naiad.extras import how_to_install
from naiad.testing import serving
from support.backend_contract import config, context, running, spec, started
from support.config_texts import parameter
from support.keras_models import keras, predicted, save, tanh_network

TENSORS = (
    'backend: "keras" max_batch_size: 8 input { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } '
    'output { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] } '
)


def completed(path: Path) -> Any:
    message = config('backend: "keras"')
    backend = registry.create("keras", context(path))
    backend.complete(message)
    backend.close()
    return message


def names_and_dims(path: Path) -> list[tuple[str, list[int]]]:
    found = completed(path)
    return [(t.name, list(t.dims)) for t in (*found.input, *found.output)]


def refusal(path: Path, text: str = TENSORS) -> str:
    with pytest.raises(NaiadError) as caught, started("keras", context(path), spec(text)):
        pass
    return str(caught.value)


def test_a_configuration_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    save(path, tanh_network(0, 8))
    found = completed(path)
    assert found.max_batch_size == 4 and found.HasField("dynamic_batching")
    assert names_and_dims(path) == [("X", [4]), ("Y", [3])]


def test_a_sequential_model(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    layers = [keras.Input((4,), name="X"), keras.layers.Dense(2), keras.layers.Dense(3, name="Y")]
    model = keras.Sequential(layers)
    save(path, model)
    assert names_and_dims(path) == [("X", [4]), ("Y", [3])]
    rows = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    with running("keras", context(path), spec(TENSORS)) as instance:
        found = instance.execute({"X": rows}, ("Y",))["Y"]
    np.testing.assert_allclose(found, predicted(model, rows), rtol=1e-6)


def test_dictionaries_of_inputs_and_outputs(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    b, a = keras.Input((2,), name="b"), keras.Input((2,), name="a")
    save(path, keras.Model({"b": b, "a": a}, {"difference": keras.layers.Subtract()([b, a]), "again": b}))
    assert sorted(names_and_dims(path)) == [("a", [2]), ("again", [2]), ("b", [2]), ("difference", [2])]
    message = completed(path)
    rows = np.array([[1, 2]], np.float32)
    with running("keras", context(path), spec(str(message).replace('name: "m"', "", 1))) as instance:
        found = instance.execute({"a": rows, "b": rows * 3}, ("difference", "again"))
    assert found["difference"].tolist() == [[2, 4]] and found["again"].tolist() == [[3, 6]]


def test_a_layer_with_two_outputs(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    x = keras.Input((3, 2), name="X")
    save(path, keras.Model(x, keras.layers.LSTM(4, return_sequences=True, return_state=True, name="memory")(x)))
    assert names_and_dims(path) == [("X", [3, 2]), ("memory", [3, 4]), ("memory_1", [4]), ("memory_2", [4])]


def test_a_fixed_batch_is_no_batch_dimension(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    x = keras.Input(batch_shape=(2, 4), name="X")
    save(path, keras.Model(x, keras.layers.Dense(3, name="Y")(x)))
    assert completed(path).max_batch_size == 0
    assert names_and_dims(path) == [("X", [2, 4]), ("Y", [2, 3])]
    assert "so it cannot batch; write max_batch_size: 0" in refusal(path)


def test_safe_mode_refuses_code_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    save(path, keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2)]))
    text = refusal(path)
    assert "keras" in text and "on torch cannot load" in text and str(path) in text
    assert "the file has code of its own, which safe mode refuses; use layers of Keras instead" in text


def test_a_class_that_keras_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"

    class Own(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x

    save(path, keras.Sequential([keras.Input((4,)), Own()]))
    assert "it uses a class that is not part of Keras; serve such a model as a Python model" in refusal(path)


def test_a_layer_of_another_keras_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    save(path, tanh_network(0, 8))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content.replace(b'"tanh"', b'"tanhx"') if name == "config.json" else content)
    assert "TypeError: Could not interpret activation function identifier: tanhx; the file is" in refusal(path)


def test_a_model_without_inputs(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    save(path, keras.Sequential([keras.layers.Dense(3)]))
    assert "begins with keras.Input" in refusal(path)


def test_a_configuration_that_contradicts_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    save(path, tanh_network(0, 8))
    text = refusal(path, TENSORS.replace("dims: [ 3 ]", "dims: [ 2 ]"))
    assert "tensor 'Y': the model expects 2 dimensions (shape [-1,3])" in text and "shape [-1,2])" in text
    words = "runs models on the processor; write kind: KIND_CPU"
    assert words in refusal(path, TENSORS + "instance_group { kind: KIND_GPU count: 1 gpus: 0 }")


LOAD = """
import os, sys
from naiad.backends import registry
from pathlib import Path
from naiad.backend_api.backend import BackendContext
context = BackendContext("m", 1, Path("model.keras"), None, {}, 1)
try:
    backend = registry.create("keras", context)
    print(backend._keras.backend.backend(), os.environ.get("KERAS_BACKEND"), os.environ.get("KERAS_HOME"))
except Exception as error:
    print(type(error).__name__, error)
"""


HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""


def imported(home: Path, hidden: tuple[str, ...] = (), **variables: str) -> str:
    """What becomes of an import of Keras in a new process with an empty home, which does not find ``hidden``."""
    names = ("KERAS_BACKEND", "KERAS_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment.update(HOME=str(home), **variables)
    done = subprocess.run(
        [sys.executable, "-c", HIDE.format(names=hidden) + LOAD],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_keras_runs_on_what_is_installed_and_leaves_no_file(tmp_path: Path) -> None:
    chosen, *variables = imported(tmp_path).split()
    assert find_spec(chosen) is not None and variables == ["None", "None"]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_keras_is_named_as_other_frameworks_are(tmp_path: Path) -> None:
    assert imported(tmp_path, ("keras",)) == (
        "BackendUnavailableError model 'm' needs the backend 'keras', and keras cannot be imported (No module named "
        f"'keras'); run: {how_to_install('keras')}"
    )


@pytest.mark.slow
def test_the_log_says_which_keras_a_model_with_its_own_python_runs_on(tmp_path: Path) -> None:
    path = tmp_path / "models" / "tanh" / "1" / "model.keras"
    path.parent.mkdir(parents=True)
    save(path, tanh_network(1, 8))
    wish = {"execution": "process", "python": sys.executable}
    (path.parent.parent / "config.pbtxt").write_text(" ".join(parameter(*each) for each in wish.items()))
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert f"model 'tanh' runs on keras {keras.__version__}, Python {platform.python_version()}" in server.log


def test_the_choice_of_the_environment_counts_and_may_not_be_installed(tmp_path: Path) -> None:
    text = imported(tmp_path, ("jax",), KERAS_BACKEND="jax")
    assert text.startswith("BackendUnavailableError model 'm' needs the backend 'keras', and keras cannot be imported")
    assert "No module named 'jax'" in text and "pip install torch, or another of tensorflow, torch, jax" in text

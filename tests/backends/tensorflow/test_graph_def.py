from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from naiad.backends import registry
from naiad.config.freeze import freeze
from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError
from naiad.tensor.dtypes import BY_WIRE
from support import tensorflow_models as models
from support.backend_contract import BackendContract, Case, assert_same, config, context, running, started, values
from support.tensorflow_models import tf

NAME = "tensorflow"
PLATFORM = 'platform: "tensorflow_graphdef" backend: "tensorflow" '
ONE_CPU = 'instance_group [ { name: "m" kind: KIND_CPU count: 1 } ]'
ECHO = """max_batch_size: 8
input [ {{ name: "A" data_type: {0} dims: 3 }}, {{ name: "B" data_type: {0} dims: 3 }} ]
output [ {{ name: "X" data_type: {0} dims: 3 }}, {{ name: "Y" data_type: {0} dims: 3 }} ] """


def spec(text: str) -> ModelSpec:
    return freeze(config(PLATFORM + text + ONE_CPU))


def tensors(x: str, y: str, names: str = "XY", batch: int = 8) -> str:
    return (
        f'max_batch_size: {batch} input {{ name: "{names[0]}" data_type: {x} }} '
        f'output {{ name: "{names[1:]}" data_type: {y} }} '
    )


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }} '


def refusal(path: Path, text: str) -> str:
    with pytest.raises(ModelLoadError) as caught, started(NAME, context(path), spec(text)):
        pass
    return str(caught.value)


class TestContract(BackendContract):
    name = NAME
    wires = tuple(BY_WIRE)

    def echo(self, folder: Path, wire: str, rows: int) -> Case:
        path = models.frozen_echo(folder / "model.graphdef", wire)
        a, b = values(wire, (rows, 3), 1), values(wire, (rows, 3), 2)
        text = ECHO.format(BY_WIRE[wire].config)
        return Case(context(path), spec(text), {"A": a, "B": b}, {"X": a, "Y": b})


def test_a_frozen_graph_of_tensorflow_1_runs(tmp_path: Path) -> None:
    path = models.frozen_variable(tmp_path / "m.graphdef", 3)
    x = np.array([[1, 2]], np.float32)
    with running(NAME, context(path), spec(tensors("TYPE_FP32 dims: 2", "TYPE_FP32 dims: 2"))) as instance:
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x * 3)


def test_a_configuration_without_tensors_is_shown_those_of_the_graph(tmp_path: Path) -> None:
    path = models.frozen_variable(tmp_path / "m.graphdef")
    backend = registry.create(NAME, context(path))
    with pytest.raises(ModelLoadError) as caught:
        backend.complete(config(PLATFORM))
    assert 'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 2 ] } ]' in str(caught.value)
    assert 'output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1, 2 ] } ]' in str(caught.value)
    complete = config(PLATFORM + tensors("TYPE_FP32 dims: 2", "TYPE_FP32 dims: 2"))
    before = complete.SerializeToString()
    backend.complete(complete)
    assert complete.SerializeToString() == before
    backend.close()


def test_any_result_of_an_operator_may_be_an_output(tmp_path: Path) -> None:
    def build() -> None:
        x = models.v1.placeholder(tf.float32, (None, 4), name="X")
        tf.identity(tf.add(*tf.split(x, 2, axis=1, name="S"), name="M"), name="Y")

    path = models.freeze(tmp_path / "m.graphdef", build)
    x = np.array([[1, 2, 3, 4]], np.float32)
    for name, expected in (("M", [[4, 6]]), ("S:1", [[3, 4]]), ("Y", [[4, 6]])):
        text = tensors("TYPE_FP32 dims: 4", "TYPE_FP32 dims: 2", "X" + name)
        with running(NAME, context(path), spec(text)) as instance:
            assert instance.execute({"X": x}, (name,))[name].tolist() == expected


def test_an_input_with_a_default_may_be_left_out_or_given(tmp_path: Path) -> None:
    def build() -> None:
        x = models.v1.placeholder(tf.float32, (None, 3), name="X")
        tf.add(x, models.v1.placeholder_with_default(np.float32(10), (), name="W"), name="Y")

    path = models.freeze(tmp_path / "m.graphdef", build)
    x = np.zeros((2, 3), np.float32)
    whole = "TYPE_FP32 dims: [ -1, 3 ]"
    with running(NAME, context(path), spec(tensors(whole, whole, batch=0))) as instance:
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x + 10)
    listed = tensors(whole, whole, batch=0) + 'input { name: "W" data_type: TYPE_FP32 dims: 1 optional: true } '
    with running(NAME, context(path), spec(listed)) as instance:
        assert_same(instance.execute({"X": x, "W": np.ones(1, np.float32)}, ("Y",))["Y"], x + 1)
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x + 10)


# Initialising operators

TABLE = tensors("TYPE_STRING dims: 1", "TYPE_INT64 dims: 1").replace('"X"', '"WORD"').replace('"Y"', '"NUMBER"')


@pytest.mark.parametrize("place", ["version", "model", "both"])
def test_operators_of_a_file_initialise_the_graph(tmp_path: Path, place: str) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    path = models.frozen_table(version / "model.graphdef")
    good, bad = json.dumps({"init_ops": ["init"]}), json.dumps({"init_ops": ["no_such_operator"]})
    (version / "ops.json" if place != "model" else version.parent / "ops.json").write_text(good)
    if place == "both":
        (version.parent / "ops.json").write_text(bad)
    words = np.array([[b"two"], [b"nine"]], object)
    with running(NAME, context(path), spec(TABLE + parameter("TF_INIT_OPS_FILE", "ops.json"))) as instance:
        assert instance.execute({"WORD": words}, ("NUMBER",))["NUMBER"].tolist() == [[2], [-1]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "and there is neither"),
        ("{", "cannot be read"),
        ('{"ops": []}', 'has something else, expected {"init_ops": ["name of an operator", ...]}'),
        ('{"init_ops": ["other"]}', "names the operator 'other', which the graph does not have"),
    ],
)
def test_a_wrong_file_of_operators(tmp_path: Path, content: str | None, expected: str) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    path = models.frozen_table(version / "model.graphdef")
    if content is not None:
        (version / "ops.json").write_text(content)
    assert expected in refusal(path, TABLE + parameter("TF_INIT_OPS_FILE", "ops.json"))


def test_a_file_of_operators_lies_in_the_models_folder(tmp_path: Path) -> None:
    path = models.frozen_table(tmp_path / "model.graphdef")
    text = refusal(path, TABLE + parameter("TF_INIT_OPS_FILE", "../../etc/passwd"))
    assert "expected the name of a file in the folder of the version or of the model" in text


# Broken files


def test_wrong_names_and_types_show_both_sides(tmp_path: Path) -> None:
    path = models.frozen_variable(tmp_path / "m.graphdef")
    text = refusal(path, tensors("TYPE_FP32 dims: 2", "TYPE_INT32 dims: 2"))
    assert "output 'Y': the configuration says TYPE_INT32, the model has TYPE_FP32 (DT_FLOAT)" in text
    text = refusal(path, tensors("TYPE_FP32 dims: 2", "TYPE_FP32 dims: 2", "XZ"))
    assert "unexpected inference output 'Z'" in text and "allowed outputs are: Y" in text


def test_files_that_are_no_graphs(tmp_path: Path) -> None:
    good = tensors("TYPE_FP32 dims: 2", "TYPE_FP32 dims: 2")
    path = tmp_path / "m.graphdef"
    assert "does not exist" in refusal(path, good)
    path.write_bytes(b"no graph at all")
    assert "is no GraphDef in its binary form" in refusal(path, good)
    path.write_bytes(b"")
    assert "has an empty network" in refusal(path, good)
    whole = models.frozen_variable(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "is no GraphDef in its binary form" in refusal(path, good)
    path.write_bytes(whole.replace(b"\x03Mul", b"\x03Mvl"))
    assert "the installed TensorFlow has no operator Mvl" in refusal(path, good)
    path.write_text('node {\n  name: "X"\n  op: "Placeholder"\n}\n')
    assert "it is a GraphDef as text; write it with tf.io.write_graph" in refusal(path, good)
    folder = models.double(tmp_path / "saved")
    path.write_bytes((folder / "saved_model.pb").read_bytes())
    assert "it is the saved_model.pb of a SavedModel; put its whole folder there" in refusal(path, good)
    later = tf.compat.v1.GraphDef.FromString(whole)
    later.versions.min_consumer = later.versions.producer = 1 << 20
    path.write_bytes(later.SerializeToString())
    assert "the model is of a newer TensorFlow; install that version" in refusal(path, good)


@pytest.mark.parametrize("is_resource", [False, True])
def test_a_graph_whose_variables_have_no_values_is_refused(tmp_path: Path, is_resource: bool) -> None:
    """Every request would fail."""

    def build() -> None:
        x = models.v1.placeholder(tf.float32, (None, 2), name="X")
        weight = models.v1.get_variable("weight", initializer=np.ones(2, np.float32), use_resource=is_resource)
        tf.multiply(x, weight, name="Y")
        models.v1.global_variables_initializer()

    path = models.freeze(tmp_path / "m.graphdef", build)
    text = tensors("TYPE_FP32 dims: 2", "TYPE_FP32 dims: 2")
    assert "is not frozen: its outputs need the variable 'weight', whose value is not in it" in refusal(path, text)
    (tmp_path / "ops.json").write_text(json.dumps({"init_ops": ["init"]}))
    x = np.array([[1, 2]], np.float32)
    with running(NAME, context(path), spec(text + parameter("TF_INIT_OPS_FILE", "ops.json"))) as instance:
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x)

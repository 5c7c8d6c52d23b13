"""Files that OpenVINO reads, from a server without configurations and by the backend itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("openvino") is None:
    pytest.skip("the extra openvino is not installed", allow_module_level=True)

import tritonclient.http

from naiad.testing import RunningServer, server_environment, serving
from support import foreign_models, onnx_models
from support import openvino_models as made
from support.openvino_backend import completed, described, loaded, parameters, reading_error, refusal, tensors

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
# Models of other formats, with the names of their tensors.
FORMATS = {"onnx": ("X", "Y"), "pdmodel": ("X", "Y"), "graphdef": ("X:0", "Y:0"), "saved_model": ("INPUT", "OUTPUT")}


def write(kind: str, folder: Path) -> Path:
    """A model of a format, as ``model.<kind>``."""
    folder.mkdir(parents=True)
    path = folder / f"model.{kind}"
    makers = {
        "onnx": onnx_models.double,
        "pdmodel": foreign_models.paddle,
        "graphdef": foreign_models.graph_def,
        "saved_model": foreign_models.saved_model,
    }
    return makers[kind](path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("openvino")
    models, home = folder / "models", folder / "home"
    home.mkdir()
    made.save(models / "resnet" / "1" / "resnet50-fp32.xml", made.double((-1, 3)))
    for kind in FORMATS:
        write(kind, models / kind / "1")
        text = f'backend: "openvino" default_model_filename: "model.{kind}" '
        if kind == "onnx":
            text += parameters(execution="process")
        (models / kind / "config.pbtxt").write_text(text)
    environment = {key: value for key, value in server_environment().items() if key != "CI"}
    with serving(folder / "log", "--model-repository", models, env={**environment, "HOME": str(home)}) as running:
        yield running


def infer(server: RunningServer, model: str, given: str, wanted: str) -> np.ndarray:
    client = tritonclient.http.InferenceServerClient(server.url)
    try:
        value = tritonclient.http.InferInput(given, X.shape, "FP32")
        value.set_data_from_numpy(X)
        found = client.infer(model, [value]).as_numpy(wanted)
        assert found is not None
        return found
    finally:
        client.close()


def test_an_ir_of_any_name_is_served_without_a_configuration(server: RunningServer) -> None:
    assert infer(server, "resnet", "X", "Y").tolist() == (X * 2).tolist()


@pytest.mark.parametrize("kind", FORMATS)
def test_other_formats_are_served(server: RunningServer, kind: str) -> None:
    given, wanted = FORMATS[kind]
    assert infer(server, kind, given, wanted).tolist() == (X * 2).tolist()


def test_openvino_sends_no_usage_data(server: RunningServer) -> None:
    """Its telemetry begins with the import, by writing an identity for the user into a folder ``intel``."""
    for model in ("resnet", "onnx"):
        infer(server, model, "X", "Y")
    assert list((server.log_file.parent / "home").iterdir()) == []


# The backend itself


def test_a_graph_may_be_called_by_the_names_of_its_operators(tmp_path: Path) -> None:
    path = write("graphdef", tmp_path / "m")
    with loaded(path, tensors("3", "3", 4)) as instance:
        assert instance.execute({"X": X}, ("Y",))["Y"].tolist() == (X * 2).tolist()


def test_a_folder_with_one_model_is_that_model(tmp_path: Path) -> None:
    folder = tmp_path / "model.xml"
    made.save(folder / "inside.xml", made.double((-1, 3)))
    assert described(completed(folder).input) == [("X", "TYPE_FP32", [3])]
    made.save(folder / "other.xml", made.double((-1, 3)))
    text = reading_error(folder)
    assert f"{folder} is a folder and should hold one model" in text and "it has inside.xml, other.xml" in text


def test_what_lies_beside_a_missing_file_is_named(tmp_path: Path) -> None:
    foreign_models.paddle(tmp_path / "net.pdmodel")
    text = reading_error(tmp_path / "model.xml")
    assert f"there is no file {tmp_path / 'model.xml'}, but there is net.pdmodel" in text
    assert "default_model_filename" in text


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    return made.save(tmp_path / "m.xml", made.linear())


def test_weights_that_are_cut_short(linear: Path) -> None:
    weights = linear.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:5])
    text = reading_error(linear)
    assert "Incorrect weights in bin file!; m.bin has 5 bytes" in text and "src/" not in text


def test_weights_that_are_missing(linear: Path) -> None:
    linear.with_suffix(".bin").unlink()
    assert "there is no m.bin beside it, which has the weights: copy both files" in reading_error(linear)


def test_an_ir_that_is_no_xml_shows_where(linear: Path) -> None:
    linear.write_text(linear.read_text()[:-200])
    assert f"openvino cannot read {linear}: it is not XML (" in reading_error(linear)
    linear.write_text("<html><body>Not found</body></html>")
    assert "the file is damaged, of another format" in reading_error(linear)


def test_an_operator_that_openvino_does_not_know(tmp_path: Path, linear: Path) -> None:
    linear.write_text(linear.read_text().replace('type="MatMul"', 'type="MatMulTwice"'))
    assert "doesn't contain the operation with type: MatMulTwice" in reading_error(linear)
    nodes = [onnx_models.helper.make_node("Nonesuch", ["X"], ["Y"])]
    path = onnx_models.save(tmp_path / "m.onnx", nodes, {"X": ("FP32", ("N", 3))}, {"Y": ("FP32", ("N", 3))})
    assert "Nonesuch" in reading_error(path)


def test_an_ir_of_another_version_names_both(linear: Path) -> None:
    linear.write_text(linear.read_text().replace('version="11"', 'version="6"', 1))
    text = reading_error(linear)
    assert "it is IR of version 6, and OpenVINO" in text and "reads 10 and 11; convert the model again" in text


def test_weights_beside_an_onnx_file_are_missing(tmp_path: Path) -> None:
    nodes = [onnx_models.helper.make_node("Add", ["X", "W"], ["Y"])]
    tensor = ("FP32", ("N", 3))
    path = onnx_models.save(tmp_path / "m.onnx", nodes, {"X": tensor}, {"Y": tensor}, {"W": np.ones(3, np.float32)})
    outside = onnx_models.onnx.load(path)
    onnx_models.onnx.save(outside, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert "there is no w.bin beside it, which has the weights: copy both files" in reading_error(path)


@pytest.mark.parametrize("name", ["m.onnx", "m.pdmodel", "m.pb", "m.tflite"])
def test_a_damaged_file_of_another_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no model\n" * 10)
    assert f"openvino cannot read {tmp_path / name}: " in reading_error(tmp_path / name)


def test_tensors_that_the_model_does_not_have_show_both_sides(linear: Path) -> None:
    assert "tensor 'X': the model expects 2 dimensions (shape [-1,4])" in refusal(linear, tensors("5", "3", 4))
    assert "says TYPE_INT32, the model has TYPE_FP32 (f32)" in refusal(linear, tensors("4", "3", 4, "TYPE_INT32"))
    text = refusal(linear, tensors("4", "3", 4).replace('"X"', '"Z"'))
    assert "unexpected inference input 'Z', allowed inputs are: X" in text


def test_a_model_survives_the_loss_of_its_files(tmp_path: Path, linear: Path) -> None:
    with loaded(linear, tensors("4", "3", 8)) as instance:
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        ones = np.ones((2, 4), np.float32)
        assert instance.execute({"X": ones}, ("Y",))["Y"].tolist() == [[4.0] * 3] * 2

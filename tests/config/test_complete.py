"""What a model's files and name say about its backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

from naiad.config.complete import complete_fields
from naiad.config.messages import ModelConfig
from naiad.config.source import ModelSource
from naiad.errors import ConfigError


def completed(folder: Path | None, text: str = "", source: ModelSource | None = None) -> tuple[str, str, str, str]:
    config = text_format.Parse(text, ModelConfig())
    complete_fields(config, source or ModelSource("m", Path("m")), folder)
    return config.name, config.backend, config.platform, config.default_model_filename


def test_name_is_the_folders(tmp_path: Path) -> None:
    assert completed(tmp_path, 'backend: "identity"') == ("m", "identity", "", "")
    assert completed(tmp_path, 'name: "n" backend: "identity"')[0] == "n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["model.savedmodel/"], ("tensorflow", "tensorflow_savedmodel", "model.savedmodel")),
        (["model.graphdef"], ("tensorflow", "tensorflow_graphdef", "model.graphdef")),
        (["model.plan"], ("tensorrt", "tensorrt_plan", "model.plan")),
        (["model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (["model.onnx/"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (["model.xml", "model.bin"], ("openvino", "", "model.xml")),
        (["resnet.xml", "resnet.bin"], ("openvino", "", "resnet.xml")),
        (["resnet.xml", "resnet.bin", "model.py"], ("python", "", "model.py")),
        (["a.xml", "a.bin", "model.xml"], ("openvino", "", "model.xml")),
        (["model.pt"], ("pytorch", "pytorch_libtorch", "model.pt")),
        (["model.pt2"], ("pytorch", "torch_aoti", "model.pt2")),
        (["model.py"], ("python", "", "model.py")),
        (["model.py", "model.pt", "model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
    ],
)
def test_backend_from_the_files(files: list[str], expected: tuple[str, str, str], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    assert completed(tmp_path)[1:] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('backend: "onnxruntime"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('platform: "onnxruntime_onnx"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('platform: "torch_aoti"', ("pytorch", "torch_aoti", "model.pt2")),
        ('backend: "pytorch"', ("pytorch", "pytorch_libtorch", "model.pt")),
        ('backend: "pytorch" default_model_filename: "a.pt2"', ("pytorch", "torch_aoti", "a.pt2")),
        ('backend: "openvino" default_model_filename: "a.onnx"', ("openvino", "", "a.onnx")),
        ('default_model_filename: "net.onnx"', ("onnxruntime", "onnxruntime_onnx", "net.onnx")),
        ('platform: "ensemble"', ("", "ensemble", "")),
        ('backend: "identity"', ("identity", "", "")),
        ('platform: "nonesuch"', ("", "nonesuch", "")),
        ('backend: "onnxruntime" platform: "pytorch_libtorch"', ("onnxruntime", "pytorch_libtorch", "")),
    ],
)
def test_backend_from_the_configuration(text: str, expected: tuple[str, str, str], tmp_path: Path) -> None:
    assert completed(tmp_path, text)[1:] == expected


def test_an_ir_of_another_name_is_the_only_one(tmp_path: Path) -> None:
    (tmp_path / "a.xml").touch()
    with pytest.raises(ConfigError, match=r"Found 'a\.xml' .* call it 'model\.xml'"):
        completed(tmp_path)
    assert completed(tmp_path, 'backend: "openvino"')[3] == "a.xml", "its weights are missed by the backend"
    (tmp_path / "a.bin").touch()
    (tmp_path / "b.xml").touch()
    with pytest.raises(ConfigError, match=r"Found 'a\.\w+' .* call it 'model\.xml'"):
        completed(tmp_path)
    assert completed(tmp_path, 'backend: "openvino"')[3] == "model.xml"
    assert completed(tmp_path, 'default_model_filename: "b.xml"')[1:] == ("openvino", "", "b.xml")


def test_stated_backend_wins_over_files(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    (tmp_path / "model.pt2").touch()
    assert completed(tmp_path, 'backend: "pytorch"')[1:] == ("pytorch", "torch_aoti", "model.pt2")


def test_backend_from_the_models_name(tmp_path: Path) -> None:
    source = ModelSource("echo.identity", tmp_path)
    assert completed(tmp_path, "", source) == ("echo.identity", "identity", "", "model.identity")


def test_single_file(tmp_path: Path) -> None:
    file = tmp_path / "resnet.onnx"
    source = ModelSource("resnet", versions={1: tmp_path}, single_file=file)
    assert completed(tmp_path, "", source) == ("resnet", "onnxruntime", "onnxruntime_onnx", "resnet.onnx")


def test_nothing_to_go_by(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^Invalid model name: Could not determine backend for model 'm' .* Found no"
    ):
        completed(tmp_path)
    (tmp_path / "resnet.onnx").touch()
    with pytest.raises(
        ConfigError, match=r"Found 'resnet\.onnx' .* call it 'model\.onnx', or set default_model_filename"
    ):
        completed(tmp_path)
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "saved_model.pb").touch()
    with pytest.raises(ConfigError, match=r"Found a SavedModel in '\S+exported': call the folder 'model\.savedmodel'"):
        completed(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ConfigError, match=r"move its files into a folder 'model\.savedmodel' there"):
        completed(tmp_path)
    with pytest.raises(ConfigError, match=r"Expected model name of the form 'model.<backend_name>'\.$"):
        completed(None)

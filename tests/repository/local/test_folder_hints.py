"""Folders that are laid out in another way than a repository, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.errors import NaiadError
from naiad.lifecycle.loading.finder import Finder
from naiad.lifecycle.state.candidate import Candidate
from naiad.lifecycle.state.load_errors import NoVersionError
from naiad.repository.local.layout import scan

ENSEMBLE = """platform: "ensemble" input { name: "A" data_type: TYPE_FP32 dims: 1 }
output { name: "B" data_type: TYPE_FP32 dims: 1 } ensemble_scheduling { step { model_name: "m" model_version: -1
input_map { key: "A" value: "A" } output_map { key: "B" value: "B" } } }"""


def put(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")


def said_of(repository: Path) -> list[str]:
    return [problem.located() for problem in scan((repository,)).problems]


def test_a_version_folder_as_repository(tmp_path: Path) -> None:
    put(tmp_path / "models" / "m" / "1" / "model.onnx")
    (said,) = said_of(tmp_path / "models" / "m" / "1")
    assert "looks like version 1 of model 'm'" in said
    assert said.endswith(f"give the folder that holds the model's folder ('{tmp_path / 'models'}')")


def test_a_models_folder_as_repository(tmp_path: Path) -> None:
    put(tmp_path / "models" / "m" / "1" / "model.onnx", tmp_path / "models" / "m" / "2" / "model.onnx")
    (said,) = said_of(tmp_path / "models" / "m")
    assert "'1', '2', which look like the versions of one model" in said
    assert said.endswith(f"give the folder above it ('{tmp_path / 'models'}')")


def test_a_folder_of_files_as_repository(tmp_path: Path) -> None:
    put(tmp_path / "resnet.onnx")
    (said,) = said_of(tmp_path)
    assert f"move it to '{tmp_path}/resnet/1/resnet.onnx', or serve the file alone: naiad serve" in said


@pytest.mark.parametrize(
    "files", [(), ("m/1/model.onnx",), ("export.py", "README.md", "m/1/model.py"), ("1/1/model.onnx",)]
)
def test_a_repository_is_left_in_peace(tmp_path: Path, files: tuple[str, ...]) -> None:
    put(*(tmp_path / file for file in files))
    assert said_of(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("v1/model.onnx", "m/v1' is no version, rename it to '1'"),
        ("version-02/model.onnx", "m/version-02' is no version, rename it to '2'"),
        ("model.safetensors", "'model.safetensors' is weights without a program: export the model to ONNX, or write a"),
        ("model.onnx", "m/model.onnx' lies beside no version folder, move it to '{}/m/1/model.onnx'"),
        (
            "inner/1/model.onnx",
            "holds 'inner' and looks like a repository itself, give it in place of",
        ),
        ("readme.txt", "found no version folder, expected a folder '1' with the model file in it"),
    ],
)
def test_a_model_without_a_version(tmp_path: Path, file: str, text: str) -> None:
    put(tmp_path / "m" / file)
    with pytest.raises(NoVersionError) as caught:
        candidate(tmp_path)
    assert text.format(tmp_path) in str(caught.value)


def candidate(repository: Path) -> Candidate:
    source = scan((repository,)).models["m"]
    return Finder().candidate(source)


def test_a_wrong_configuration_is_said_beside_the_missing_version(tmp_path: Path) -> None:
    put(tmp_path / "m" / "config.pbtxt")
    wrong = 'backend: "identity" max_batch_size: -1 input { name: "A" data_type: TYPE_FP32 dims: 0 }'
    (tmp_path / "m" / "config.pbtxt").write_text(wrong)
    with pytest.raises(NaiadError) as caught:
        candidate(tmp_path)
    first, *_, last = caught.value.located().splitlines()
    assert f"{tmp_path}/m/config.pbtxt:1: " in first
    assert "max_batch_size" in first
    assert "found no version folder" in last


@pytest.mark.parametrize("text", ["", 'backend: "onnxruntime"', 'backend: "onnxruntime" dynamic_batching { }'])
def test_what_a_framework_would_complete_is_not_missing(tmp_path: Path, text: str) -> None:
    put(tmp_path / "m" / "config.pbtxt")
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    with pytest.raises(NoVersionError):
        candidate(tmp_path)


def test_an_ensemble_needs_no_version_folder(tmp_path: Path) -> None:
    put(tmp_path / "m" / "config.pbtxt")
    (tmp_path / "m" / "config.pbtxt").write_text(ENSEMBLE)
    assert candidate(tmp_path).versions == (1,)

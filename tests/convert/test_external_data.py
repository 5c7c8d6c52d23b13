"""ONNX files whose weights lie beside them, as those above 2 GB have to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.convert.errors import StepError
from naiad.convert.steps.onnx_files import copied

onnx = pytest.importorskip("onnx")

SIGNATURE: dict[str, Any] = {
    "inputs": [{"name": "x", "dtype": "float32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [-1, 4]}],
    "is_batching": True,
    "by_name": True,
}


def write(folder: Path, location: str) -> Path:
    """A model that multiplies by 2, its weights at ``location``."""
    weights = onnx.numpy_helper.from_array(2 * np.eye(4, dtype=np.float32), "w")
    onnx.external_data_helper.set_external_data(weights, location)
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.ClearField("raw_data")
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [tensor("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [tensor("y", onnx.TensorProto.FLOAT, ["n", 4])],
        [weights],
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir()
    file = folder / "model.onnx"
    file.write_bytes(made.SerializeToString())
    return file


def test_weights_beside_the_file_are_copied_with_it(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    source = write(tmp_path / "source", "weights/large.bin")
    (source.parent / "weights").mkdir()
    (2 * np.eye(4, dtype=np.float32)).tofile(source.parent / "weights" / "large.bin")
    (tmp_path / "made").mkdir()
    found = copied(str(source), SIGNATURE, str(tmp_path / "made" / "model.onnx"))
    session = onnxruntime.InferenceSession(found["file"], providers=["CPUExecutionProvider"])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert np.array_equal(session.run(["y"], {"x": x})[0], 2 * x)


@pytest.mark.parametrize("location", ["../large.bin", "/etc/passwd"])
def test_weights_elsewhere_are_refused(tmp_path: Path, location: str) -> None:
    source = write(tmp_path / "source", location)
    with pytest.raises(StepError, match="external data") as raised:
        copied(str(source), SIGNATURE, str(tmp_path / "model.onnx"))
    assert "own folder" in raised.value.advice

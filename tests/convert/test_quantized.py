"""ONNX with weights of 8 bits, by the quantiser of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from naiad.convert.steps.quantized import dynamic

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def test_the_model_is_alone_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = onnx.helper.make_tensor_value_info
    weights = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [tensor("x", onnx.TensorProto.FLOAT, ["n", 64])],
        [tensor("y", onnx.TensorProto.FLOAT, ["n", 64])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "parent.onnx")
    (tmp_path / "step").mkdir()
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path / "step")
    file = tmp_path / "model" / "model.onnx"
    dynamic(str(tmp_path / "parent.onnx"), str(file), {"inputs": ["x"], "outputs": ["y"]})
    # The folder is published as it is.
    assert [one.name for one in file.parent.iterdir()] == ["model.onnx"]
    assert list((tmp_path / "step").iterdir()) == []
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    x = np.ones((2, 64), np.float32)
    assert np.allclose(session.run(["y"], {"x": x})[0], x @ weights, atol=0.5)

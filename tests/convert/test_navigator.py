"""The original's names: formats, strategies, repositories and a whole ``optimize``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import naiad
import naiad.navigator as nav
from naiad.convert.errors import ConvertError
from naiad.navigator.configuration import our_formats


def test_the_originals_formats_are_ours() -> None:
    assert our_formats((nav.Format.ONNX, "torchscript")) == (
        "onnx",
        "onnx-trace",
        "torchscript-trace",
        "torchscript-script",
    )
    assert our_formats(("openvino-int8", nav.Format.TORCH)) == ("openvino-int8",)
    with pytest.raises(ConvertError, match="no format 'onxx'"):
        our_formats(("onxx",))


def test_a_profile_says_how_to_measure() -> None:
    measuring = nav.OptimizationProfile(batch_sizes=[1, 8], max_trials=5).measuring()
    assert (measuring.batch_sizes, measuring.max_trials) == ((1, 8), 5)


def test_add_model_writes_a_repository_that_is_served(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "double", tensors[:1], tensors[1:])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(made, tmp_path / "double.onnx")
    nav.triton.model_repository.add_model(
        model_repository_path=tmp_path / "models",
        model_name="double",
        model_path=tmp_path / "double.onnx",
        config=nav.triton.ONNXModelConfig(
            max_batch_size=8,
            inputs=[nav.triton.InputTensorSpec("x", (2,), np.float32)],
            outputs=[nav.triton.OutputTensorSpec("y", (2,), np.float32)],
            batcher=nav.triton.DynamicBatcher(max_queue_delay_microseconds=100),
        ),
    )
    with naiad.Server(model_repository=str(tmp_path / "models")) as server:
        (response,) = server.model("double").infer(inputs={"x": np.ones((1, 2), np.float32)})
        assert response.outputs["y"].numpy().tolist() == [[2, 2]]
    with pytest.raises(ConvertError, match="already"):
        nav.triton.model_repository.add_model(
            tmp_path / "models", "double", tmp_path / "double.onnx", nav.triton.ONNXModelConfig()
        )


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_optimize_converts_a_live_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    package = nav.torch.optimize(
        model=torch.nn.Linear(4, 2),
        dataloader=[torch.randn(2, 4), torch.randn(3, 4)],
        target_formats=("torchscript-trace",),
        optimization_profile=nav.OptimizationProfile(batch_sizes=[1], stability_percentage=90),
        workspace=tmp_path / "work",
        verify_func=lambda found, wanted: np.allclose(found[1]["output__0"], wanted[1]["output__0"], atol=1e-5),
    )
    assert not package.is_empty()
    best = package.get_best_model_status(strategies=[nav.MinLatencyStrategy()])
    assert best is not None and best.target == "torchscript-trace"
    nav.package.save(package, tmp_path / "net.nav")
    again = nav.package.load(tmp_path / "net.nav", tmp_path / "again")
    with again.get_runner(strategies=[nav.MaxThroughputStrategy()]) as runner:
        rows = np.ones((1, 4), np.float32)
        assert runner.infer({"input__0": rows})["output__0"].shape == (1, 2)
    folder = nav.triton.model_repository.add_model_from_package(tmp_path / "models", "net", again)
    assert (folder / "config.pbtxt").exists()

"""``nav.triton``: configurations of models as a server reads them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naiad
import naiad.client
import naiad.navigator as nav
from naiad.navigator.exceptions import ModelNavigatorWrongParameterError
from naiad.navigator.triton.config_text import config_text

TOTALS = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.response(request) for request in requests]

        def response(self, request):
            read = lambda name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            total = read("x") + read("total_in")
            outputs = [pb_utils.Tensor(name, total) for name in ("y", "total_out")]
            return pb_utils.InferenceResponse(outputs)
"""
DOUBLES = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        seen = 0.0

        def execute(self, requests):
            return [self.response(request) for request in requests]

        def response(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            found = x + TritonPythonModel.seen
            TritonPythonModel.seen = max(TritonPythonModel.seen, float(x.max()))
            return pb_utils.InferenceResponse([pb_utils.Tensor("y", found)])
"""
X = nav.triton.InputTensorSpec("x", (1,), np.float32)
Y = nav.triton.OutputTensorSpec("y", (1,), np.float32)


def written(folder: Path, code: str) -> Path:
    path = folder / "code.py"
    path.write_text(textwrap.dedent(code))
    return path


def test_sequences_start_with_the_state_of_a_file(tmp_path: Path) -> None:
    triton = nav.triton
    start = tmp_path / "start.bin"
    np.array([5], np.float32).tofile(start)
    kinds = triton.SequenceBatcherControlKind
    state = triton.SequenceBatcherState(
        "total_in",
        "total_out",
        np.float32,
        (1,),
        [triton.SequenceBatcherInitialState("five", (1,), np.float32, data_file=start)],
    )
    batcher = triton.SequenceBatcher(
        triton.SequenceBatcherStrategyOldest(4, preferred_batch_size=[2]),
        max_sequence_idle_microseconds=60_000_000,
        control_inputs=[
            triton.SequenceBatcherControlInput(
                "START",
                [triton.SequenceBatcherControl(kinds.CONTROL_SEQUENCE_START, int32_false_true=[0, 1])],
            ),
            triton.SequenceBatcherControlInput(
                "ID", [triton.SequenceBatcherControl(kinds.CONTROL_SEQUENCE_CORRID, dtype=np.uint64)]
            ),
        ],
        states=[state],
    )
    config = triton.PythonModelConfig(batcher=batcher, inputs=[X], outputs=[Y])
    repository = tmp_path / "models"
    triton.model_repository.add_model(repository, "totals", written(tmp_path, TOTALS), config)
    row = np.array([[1]], np.float32)
    with (
        naiad.Server(model_repository=str(repository), http_address="127.0.0.1", http_port=0) as server,
        naiad.client.Client(server.http_url) as client,
    ):
        found = [
            client.infer("totals", {"x": row}, parameters={"sequence_id": 1, "sequence_start": first})["y"].item()
            for first in (True, False)
        ]
        batching = client.config("totals")["sequence_batching"]
    assert found == [6, 7]
    assert batching["max_sequence_idle_microseconds"] == 60_000_000
    assert batching["oldest"]["preferred_batch_size"] == [2]


def test_priorities_groups_and_the_file_of_a_warm_up(tmp_path: Path) -> None:
    triton = nav.triton
    sample = tmp_path / "sample.bin"
    np.array([40], np.float32).tofile(sample)
    file = triton.ModelWarmupInput((1,), np.float32, triton.ModelWarmupInputDataType.FILE, sample)
    policy = triton.QueuePolicy(triton.TimeoutAction.DELAY, 1000, allow_timeout_override=True, max_queue_size=7)
    config = triton.PythonModelConfig(
        max_batch_size=8,
        batcher=triton.DynamicBatcher(
            max_queue_delay_microseconds=10,
            priority_levels=2,
            default_priority_level=2,
            default_queue_policy=policy,
            priority_queue_policy={1: triton.QueuePolicy(max_queue_size=3)},
        ),
        instance_groups=[triton.InstanceGroup(triton.DeviceKind.KIND_CPU, count=1)],
        parameters={"note": "kept"},
        response_cache=True,
        warmup={"first": triton.ModelWarmup({"x": file}, batch_size=1, iterations=1)},
        inputs=[X],
        outputs=[Y],
    )
    repository = tmp_path / "models"
    triton.model_repository.add_model(repository, "seen", written(tmp_path, DOUBLES), config)
    with naiad.Server(model_repository=str(repository)) as server:
        model = server.model("seen")
        (response,) = model.infer(inputs={"x": np.array([[2]], np.float32)})
        shown = model.config()
    # The warm-up left its greatest number behind.
    assert response.outputs["y"].numpy().tolist() == [[42]]
    batching = shown["dynamic_batching"]
    assert batching["max_queue_delay_microseconds"] == 10
    assert (batching["priority_levels"], batching["default_priority_level"]) == (2, 2)
    assert batching["default_queue_policy"] == {
        "timeout_action": "DELAY",
        "default_timeout_microseconds": 1000,
        "allow_timeout_override": True,
        "max_queue_size": 7,
    }
    assert batching["priority_queue_policy"]["1"]["max_queue_size"] == 3
    assert [(group["kind"], group["count"]) for group in shown["instance_group"]] == [("KIND_CPU", 1)]
    assert shown["parameters"]["note"]["string_value"] == "kept"
    assert shown["response_cache"]["enable"]


def test_accelerators_and_platforms_are_written() -> None:
    triton = nav.triton
    tensorrt = triton.TensorRTAccelerator(triton.TensorRTOptPrecision.FP16, max_workspace_size=2)
    onnx = triton.ONNXModelConfig(
        platform=triton.Platform.ONNXRuntimeONNX, optimization=triton.ONNXOptimization(tensorrt)
    )
    text = config_text("m", onnx)
    assert 'platform: "onnxruntime_onnx"' in text and "backend" not in text
    assert 'value: "2097152"' in text and 'value: "FP16"' in text
    openvino = triton.ONNXModelConfig(optimization=triton.ONNXOptimization(triton.OpenVINOAccelerator()))
    assert 'cpu_execution_accelerator {\n      name: "openvino"' in config_text("m", openvino)
    plan = triton.TensorRTModelConfig(
        batching=False,
        instance_groups=[triton.InstanceGroup(profile=["1"])],
        optimization=triton.TensorRTOptimization(cuda_graphs=True),
    )
    text = config_text("m", plan)
    assert 'profile: "1"' in text
    assert "graphs: true" in text and text.endswith("max_batch_size: 0\n")
    assert plan.place == "model.plan"
    graph = triton.TensorFlowModelConfig(platform=triton.Platform.TensorFlowGraphDef)
    assert graph.place == "model.graphdef"


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("ONNXModelConfig", {"max_batch_size": 0}),
        ("ONNXModelConfig", {"platform": nav.triton.Platform.TensorRTPlan}),
        ("ONNXModelConfig", {"optimization": nav.triton.TensorRTOptimization(cuda_graphs=True)}),
        ("ONNXModelConfig", {"batcher": None}),
        ("ONNXModelConfig", {"instance_groups": [nav.triton.InstanceGroup(profile=["0"])]}),
        ("ONNXOptimization", {"accelerator": nav.triton.GPUIOAccelerator()}),
        ("TensorFlowOptimization", {"accelerator": nav.triton.OpenVINOAccelerator()}),
        ("SequenceBatcher", {"strategy": nav.triton.DynamicBatcher()}),
        ("InstanceGroup", {"count": 0}),
        ("InstanceGroup", {"kind": nav.triton.DeviceKind.KIND_CPU, "gpus": [0]}),
        ("InputTensorSpec", {"name": "x", "shape": (0,)}),
        ("ModelWarmup", {"inputs": {}, "batch_size": 0}),
        (
            "ModelWarmupInput",
            {"shape": (1,), "dtype": np.float32, "input_data_type": nav.triton.ModelWarmupInputDataType.FILE},
        ),
        ("SequenceBatcherControl", {"kind": nav.triton.SequenceBatcherControlKind.CONTROL_SEQUENCE_CORRID}),
        ("SequenceBatcherControl", {"kind": nav.triton.SequenceBatcherControlKind.CONTROL_SEQUENCE_END}),
        ("SequenceBatcherInitialState", {"name": "s", "shape": (1,)}),
        ("TensorRTOptimization", {}),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ModelNavigatorWrongParameterError, match="found"):
        getattr(nav.triton, kind)(**arguments)


@pytest.mark.parametrize(
    "batcher",
    [
        nav.triton.DynamicBatcher(default_priority_level=1),
        nav.triton.DynamicBatcher(priority_levels=1, priority_queue_policy={2: nav.triton.QueuePolicy()}),
    ],
)
def test_priorities_that_are_not_there_are_refused(batcher: nav.triton.DynamicBatcher) -> None:
    with pytest.raises(ModelNavigatorWrongParameterError, match="expected 1 to priority_levels="):
        config_text("m", nav.triton.ONNXModelConfig(batcher=batcher))


def test_a_datatype_that_no_tensor_has_is_refused() -> None:
    config = nav.triton.ONNXModelConfig(inputs=[nav.triton.InputTensorSpec("x", (1,), np.complex64)])
    with pytest.raises(ModelNavigatorWrongParameterError, match="x: found the datatype"):
        config_text("m", config)

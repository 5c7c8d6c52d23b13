"""Accelerators of ONNX models: what a configuration says, as providers of ONNX Runtime with options, and refusals.

No GPU is needed: the options are those that a session would get.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.backends import registry
from naiad.backends.onnx.accelerator_options import TENSORRT_OPTIONS
from naiad.backends.onnx.accelerators import providers, read_accelerations, with_defaults
from naiad.config.freeze import accelerators
from naiad.config.spec import AcceleratorSpec
from naiad.errors import ModelLoadError
from support import onnx_models
from support.backend_contract import config, context, spec

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

# As it stands in published pages, where nothing separates a name from what follows.
PUBLISHED = """optimization { execution_accelerators {
  gpu_execution_accelerator : [ {
    name : "tensorrt"parameters { key: "precision_mode" value: "FP16" }parameters { key: "max_workspace_size_bytes" value: "1073741824" }
  }]
}}"""  # noqa: E501
DOUBLE = """backend: "onnxruntime" max_batch_size: 8 input { name: "X" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] } """
OPENVINO = 'optimization { execution_accelerators { cpu_execution_accelerator : [ {name : "openvino"}] } } '
CUDA = "CUDAExecutionProvider"


def options(*found: AcceleratorSpec, **parameters: str) -> dict[str, dict[str, str]]:
    """The providers of a session on GPU 1, with their options."""
    wanted = read_accelerations("m", found, parameters, on_gpu=True)
    return dict(providers(wanted, 1))


def tensorrt(**parameters: str) -> dict[str, str]:
    """The options of TensorRT, without the device."""
    found = options(AcceleratorSpec("tensorrt", True, parameters))["TensorrtExecutionProvider"]
    return {name: value for name, value in found.items() if name != "device_id"}


def cuda(**parameters: str) -> dict[str, str]:
    return options(AcceleratorSpec("cuda", True, parameters))[CUDA]


def refusal(call: object, *arguments: object, **more: object) -> str:
    with pytest.raises(ModelLoadError) as caught:
        call(*arguments, **more)  # type: ignore[operator]
    return str(caught.value)


def test_the_text_of_published_pages_is_read() -> None:
    found = accelerators(config(PUBLISHED))
    assert found == (
        AcceleratorSpec("tensorrt", True, {"precision_mode": "FP16", "max_workspace_size_bytes": "1073741824"}),
    )
    wanted = read_accelerations("m", found, {}, on_gpu=True)
    # What TensorRT lacks runs on CUDA, and what that lacks on the processor.
    assert providers(wanted, 2) == [
        (
            "TensorrtExecutionProvider",
            {"trt_fp16_enable": "1", "trt_max_workspace_size": "1073741824", "device_id": "2"},
        ),
        (CUDA, {"device_id": "2"}),
        ("CPUExecutionProvider", {}),
    ]
    # Instances on the processor have none of it.
    assert read_accelerations("m", found, {}, on_gpu=False) == ()


def test_every_documented_parameter_of_tensorrt() -> None:
    assert [tensorrt(precision_mode=mode) for mode in ("FP32", "FP16", "BF16", "int8")] == [
        {},
        {"trt_fp16_enable": "1"},
        {"trt_bf16_enable": "1"},
        {"trt_int8_enable": "1"},
    ]
    assert tensorrt(int8_calibration_table_name="t.flatbuffers", int8_use_native_calibration_table="true") == {
        "trt_int8_calibration_table_name": "t.flatbuffers",
        "trt_int8_use_native_calibration_table": "1",
    }
    given = {
        **dict.fromkeys(
            ("trt_max_partition_iterations", "trt_min_subgraph_size", "trt_builder_optimization_level"), "4"
        ),
        **dict.fromkeys(("trt_dla_core", "trt_ep_context_embed_mode"), "1"),
        "trt_auxiliary_streams": "-1",
        **dict.fromkeys(
            (
                *("trt_engine_cache_path", "trt_engine_cache_prefix", "trt_timing_cache_path", "trt_tactic_sources"),
                *("trt_extra_plugin_lib_paths", "trt_profile_min_shapes", "trt_profile_max_shapes"),
                *("trt_profile_opt_shapes", "trt_ep_context_file_path"),
            ),
            "X:1x3",
        ),
    }
    flags = (
        *("trt_dla_enable", "trt_engine_cache_enable", "trt_dump_subgraphs", "trt_force_sequential_engine_build"),
        *("trt_context_memory_sharing_enable", "trt_layer_norm_fp32_fallback", "trt_timing_cache_enable"),
        *("trt_force_timing_cache", "trt_detailed_build_log", "trt_build_heuristics_enable", "trt_sparsity_enable"),
        *("trt_cuda_graph_enable", "trt_dump_ep_context_model"),
    )
    assert tensorrt(**given, **dict.fromkeys(flags, "True")) == {**given, **dict.fromkeys(flags, "1")}
    others = {"precision_mode", "max_workspace_size_bytes"}
    others |= {"int8_calibration_table_name", "int8_use_native_calibration_table"}
    assert others | given.keys() | set(flags) == TENSORRT_OPTIONS.readers.keys()


def test_options_of_cuda_and_the_older_parameters_of_the_model() -> None:
    names = ["EXHAUSTIVE", "HEURISTIC", "DEFAULT"]
    assert [cuda(cudnn_conv_algo_search=str(number))["cudnn_conv_algo_search"] for number in range(3)] == names
    assert [cuda(cudnn_conv_algo_search=name.lower())["cudnn_conv_algo_search"] for name in names] == names
    assert cuda(gpu_mem_limit="1000", use_tf32="false", a_new_option="x") == {
        "gpu_mem_limit": "1000",
        "use_tf32": "0",
        # ONNX Runtime knows whether it is one.
        "a_new_option": "x",
        "device_id": "1",
    }
    older = {"cudnn_conv_algo_search": "1", "gpu_mem_limit": "2000", "arena_extend_strategy": "1", "team": "vision"}
    expected = {"cudnn_conv_algo_search": "HEURISTIC", "gpu_mem_limit": "2000"}
    expected["arena_extend_strategy"] = "kSameAsRequested"
    assert options(**older) == {CUDA: {**expected, "device_id": "1"}, "CPUExecutionProvider": {}}
    # What the accelerator says counts first.
    said = options(AcceleratorSpec("cuda", True, {"gpu_mem_limit": "7"}), **older)[CUDA]
    assert said == {**expected, "gpu_mem_limit": "7", "device_id": "1"}


@pytest.mark.parametrize(
    ("name", "on_gpu", "parameters", "text"),
    [
        ("tensort", True, {}, "unknown Execution Accelerator 'tensort' is requested .* did you mean 'tensorrt'"),
        (
            "openvino",
            True,
            {},
            "'openvino' is requested .*, it is a cpu_execution_accelerator; known are tensorrt, cuda",
        ),
        ("cuda", False, {}, "'cuda' is requested .*, it is a gpu_execution_accelerator; known are openvino, dnnl"),
        ("tensorrt", True, {"precision": "FP16"}, "unknown parameter 'precision' is provided for TensorRT"),
        ("cuda", True, {"gpu_mem_limt": "1"}, "'gpu_mem_limt' is provided for CUDA .* did you mean 'gpu_mem_limit'"),
        ("tensorrt", True, {"precision_mode": "FP8"}, 'is "FP8", expected one of "FP32", "FP16", "BF16", "INT8"'),
        ("tensorrt", True, {"max_workspace_size_bytes": "1G"}, 'is "1G", expected a whole number of at least 0'),
        ("tensorrt", True, {"trt_builder_optimization_level": "6"}, 'is "6", expected a whole number from 0 to 5'),
        ("tensorrt", True, {"trt_sparsity_enable": "maybe"}, 'is "maybe", expected "true" or "false"'),
        ("cuda", True, {"cudnn_conv_algo_search": "3"}, 'is "3", expected .*"DEFAULT", or its number from "0" to "2"'),
        ("openvino", False, {"num_streams": "0"}, "cpu_execution_accelerator 'openvino': parameter 'num_streams'"),
        (
            "openvino",
            False,
            {"load_config": "/no.json"},
            'is "/no.json", expected a JSON object, or the path of a file',
        ),
        ("openvino", False, {"load_config": '{"CPU": 1'}, "expected a JSON object, or the path of a file with one"),
    ],
)
def test_what_is_wrong_is_named_also_where_there_is_no_gpu(
    name: str, on_gpu: bool, parameters: dict[str, str], text: str
) -> None:
    wrong = (AcceleratorSpec(name, on_gpu, parameters),)
    with pytest.raises(ModelLoadError, match=text):
        read_accelerations("m", wrong, {}, on_gpu=False)


def test_openvino_gets_the_threads_of_an_instance() -> None:
    (found,) = read_accelerations("m", (AcceleratorSpec("openvino", False, {"num_streams": "2"}),), {}, on_gpu=False)
    assert providers([with_defaults(found, 3)], None) == [
        ("OpenVINOExecutionProvider", {"device_type": "CPU", "num_of_threads": "3", "num_streams": "2"}),
        ("CPUExecutionProvider", {}),
    ]
    (dnnl,) = read_accelerations("m", (AcceleratorSpec("dnnl", False, {"use_arena": "no"}),), {}, on_gpu=False)
    assert providers([with_defaults(dnnl, 3)], None)[0] == ("DnnlExecutionProvider", {"use_arena": "0"})


def test_load_config_of_openvino_is_json_or_a_file_with_it(tmp_path: Path) -> None:
    text = '{"CPU": {"INFERENCE_NUM_THREADS": "1"}}'
    (tmp_path / "cpu.json").write_text(text)
    for value in (text, str(tmp_path / "cpu.json")):
        (found,) = read_accelerations(
            "m", (AcceleratorSpec("openvino", False, {"load_config": value}),), {}, on_gpu=False
        )
        assert found.options == {"load_config": text}
    (tmp_path / "cpu.json").write_text("[]")
    with pytest.raises(ModelLoadError, match="expected a JSON object"):
        read_accelerations("m", (AcceleratorSpec("openvino", False, {"load_config": value}),), {}, on_gpu=False)


def load_error(tmp_path: Path, text: str) -> str:
    path = onnx_models.double(tmp_path / "m.onnx")
    backend = registry.create("onnxruntime", context(path))
    return refusal(backend.start, spec(DOUBLE + text))


@pytest.mark.skipif(
    "OpenVINOExecutionProvider" in onnxruntime.get_available_providers(), reason="this ONNX Runtime has OpenVINO"
)
def test_an_accelerator_that_the_package_lacks_names_the_package(tmp_path: Path) -> None:
    text = load_error(tmp_path, OPENVINO)
    version = onnxruntime.__version__
    assert f"asks for OpenVINO, and the installed onnxruntime {version} has no OpenVINOExecutionProvider" in text
    assert "pip install onnxruntime-openvino" in text and "execution=process and a requirements.txt" in text
    assert "remove" not in text
    text = load_error(tmp_path, OPENVINO.replace("openvino", "dnnl"))
    assert "no package has it; build ONNX Runtime with DNNL (--use_dnnl)" in text


@pytest.mark.skipif(CUDA in onnxruntime.get_available_providers(), reason="this ONNX Runtime has CUDA")
def test_an_accelerator_of_gpus_says_what_it_takes(tmp_path: Path) -> None:
    text = load_error(tmp_path, PUBLISHED)
    assert "gpu_execution_accelerator 'tensorrt' is for instances on a GPU" in text
    assert "the installed onnxruntime has no TensorrtExecutionProvider; install onnxruntime-gpu in the place" in text
    assert "write kind: KIND_GPU; --gpu-fallback=cpu serves the model without it" in text
    text = load_error(tmp_path, PUBLISHED + ' instance_group { name: "g" kind: KIND_GPU count: 1 gpus: 0 }')
    assert "install onnxruntime-gpu" in text

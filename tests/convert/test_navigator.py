"""The original's names: formats, strategies, repositories and a whole ``optimize``."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import yaml

import naiad
import naiad.navigator as nav
from naiad.convert.errors import ConvertError
from naiad.convert.results import BatchLevel, BatchLevels, Conversion, FormatResult
from naiad.convert.samples import write_samples
from naiad.convert.steps import python_model
from naiad.navigator import nested
from naiad.navigator.formats import our_formats
from naiad.pytriton.model_config import Tensor


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


def test_the_originals_default_formats_are_taken() -> None:
    defaults = nav.configuration
    assert our_formats(defaults.DEFAULT_ONNX_TARGET_FORMATS) == ("onnx", "onnx-trace", "tensorrt")
    assert our_formats(defaults.DEFAULT_TENSORFLOW_TARGET_FORMATS)[0] == "savedmodel"
    assert {"torchscript-trace", "torch-export"} < set(our_formats(defaults.DEFAULT_TORCH_TARGET_FORMATS))
    assert our_formats(defaults.DEFAULT_NONE_FRAMEWORK_TARGET_FORMATS) == ("python",)


def test_formats_that_are_not_made_are_refused_rather_than_all_converted(tmp_path: Path) -> None:
    assert our_formats(None) == our_formats(()) == ()
    with pytest.raises(nav.exceptions.ModelNavigatorConfigurationError, match="made here: torch, torch-trt"):
        our_formats((nav.Format.TORCH, nav.Format.TORCH_TRT))
    with pytest.raises(nav.exceptions.ModelNavigatorConfigurationError):
        nav.package.profile(measured_package(tmp_path), target_formats=("tf-trt",))


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("torch-exportedprogram", "torch-export"),
        (nav.Format.TF_SAVEDMODEL, "savedmodel"),
        ("onnx", "onnx-trace"),
        ("onnx-trace", "onnx-trace"),
        ("torchscript-script", "torchscript-script"),
        ("openvino", "openvino"),
    ],
)
def test_the_originals_keys_name_formats(key: str, target: str, tmp_path: Path) -> None:
    result = FormatResult(target, made={"file": str(tmp_path / target)}, measured=BatchLevels([]))
    package = nav.Package(Conversion("net", "net", str(tmp_path), formats=[result]))
    assert package.get_model_path(key) == tmp_path / target
    assert package.get_best_model_status([nav.SelectedRuntimeStrategy(key, "OnnxCPU")]) is result
    for other in ("onnx-dynamo", "torch", "trt-fp16"):
        assert package.get_best_model_status([nav.SelectedRuntimeStrategy(other)]) is None
        with pytest.raises(nav.exceptions.ModelNavigatorNotFoundError, match=other):
            package.get_model_path(other)


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (32, [1, 2, 4, 8, 16, 32]), (100, [1, 2, 4, 8, 16, 32, 64, 100])],
)
def test_the_largest_batch_is_tried_whatever_it_is(largest: int, sizes: list[int]) -> None:
    assert nav.OptimizationProfile(max_batch_size=largest).measuring().sizes == sizes


def test_a_profile_says_how_to_measure() -> None:
    measuring = nav.OptimizationProfile(batch_sizes=[1, 8], max_trials=5).measuring()
    assert (measuring.batch_sizes, measuring.max_trials) == ((1, 8), 5)
    assert nav.OptimizationProfile(throughput_cutoff_threshold=None).measuring().cutoff is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"window_size": 0}, "window_size is 0"),
        ({"stability_percentage": 0.0}, r"stability_percentage is 0\.0"),
        ({"max_trials": 0}, "max_trials is 0"),
        ({"throughput_backoff_limit": -1}, "throughput_backoff_limit is -1"),
        ({"stabilization_windows": 4}, "min_trials 3"),
        ({"max_trials": 2}, "max_trials 2"),
    ],
)
def test_a_profile_that_cannot_measure_is_refused(fields: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(nav.exceptions.ModelNavigatorConfigurationError, match=text):
        nav.OptimizationProfile(**fields)
    with pytest.raises(nav.exceptions.ModelNavigatorConfigurationError, match=text):
        nav.package.profile(measured_package(tmp_path), **fields)


def test_the_originals_settings_are_taken() -> None:
    profile = nav.TensorRTProfile().add("x", (1, 5), (3, 5), (4, 5)).add("y", (1,), (2,), (3,))
    assert profile["x"].max == (4, 5)
    nav.TensorRTConfig(trt_profiles=[profile], precision=(nav.TensorRTPrecision.FP32,), custom_args={"--flag": True})
    nav.TorchTensorRTConfig(custom_args={"ir": "ts"})
    nav.TensorFlowTensorRTConfig(trt_profiles=[profile])
    nav.TorchConfig(autocast=True, autocast_dtype=nav.AutocastType.BF16)
    nav.OnnxConfig(opset=17, export_engine=[nav.OnnxTraceExportConfig(), nav.OnnxDynamoExportConfig()])
    assert nav.torch.OptimizationProfile is nav.OptimizationProfile
    assert nav.configuration.SelectedRuntimeStrategy is nav.SelectedRuntimeStrategy
    assert issubclass(nav.configuration.MinLatencyStrategy, nav.configuration.RuntimeSearchStrategy)
    assert nav.configuration.Sample == dict[str, np.ndarray[Any, Any]]


def measured_package(folder: Path) -> nav.Package:
    """A package with one measured format: a function that doubles rows of 4."""
    (folder / "double.py").write_text("def double(x):\n    return {'y': 2 * x}\n", encoding="utf-8")
    tensor = {"dtype": "float32", "shape": [-1, 4]}
    signature = {"inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}]}
    result = FormatResult(
        "python",
        made={"file": "", "callable": f"{folder / 'double.py'}:double", "inputs": ["x"], "outputs": ["y"]},
        verified={"is_good": True},
        measured=BatchLevels([BatchLevel(1, 10, 1, 1, 1), BatchLevel(8, 40, 2, 2, 2)]),
    )
    described = {"signature": {**signature, "is_batching": True, "by_name": True}}
    return nav.Package(Conversion("double", "double", str(folder), described=described, formats=[result]))


@pytest.mark.parametrize(
    "name",
    ["Configuration", "MissingSourceModel", "ModuleNotOptimized", "Profiling", "Runtime", "TensorType", "Deployer"],
)
def test_scripts_may_catch_what_nothing_raises(name: str) -> None:
    kind = getattr(nav.exceptions, f"ModelNavigator{name}Error")
    assert issubclass(kind, nav.exceptions.ModelNavigatorError)


def test_a_runner_takes_and_returns_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    rows = torch.ones((2, 4))
    with measured_package(tmp_path).get_runner(return_type=nav.TensorType.TORCH) as runner:
        found = runner.infer({"x": rows}, check_inputs=True)["y"]
        assert isinstance(found, torch.Tensor) and torch.equal(found, 2 * rows)
        with pytest.raises(nav.exceptions.ModelNavigatorUserInputError, match="the feed has z, and the model takes x"):
            runner.infer({"z": rows})


def test_files_that_are_there_or_gone_have_pythons_errors(tmp_path: Path) -> None:
    folder, saved = tmp_path / "work", tmp_path / "double.nav"
    folder.mkdir()
    package = measured_package(folder)
    nav.package.save(package, saved)
    with pytest.raises(FileExistsError, match="give another name") as caught:
        nav.package.save(package, saved)
    assert isinstance(caught.value, nav.exceptions.ModelNavigatorError)
    nav.package.save(package, saved, override=True)
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match="nothing is left to save"):
        nav.package.save(package, tmp_path / "other.nav")
    assert not (tmp_path / "other.nav").exists()
    with pytest.raises(FileNotFoundError, match=r"there is no file .*other\.nav"):
        nav.package.load(tmp_path / "other.nav")


def test_a_package_loaded_without_a_workspace_leaves_nothing(tmp_path: Path) -> None:
    saved, temporary = tmp_path / "double.nav", tmp_path / "temporary"
    nav.package.save(measured_package(tmp_path), saved)
    temporary.mkdir()
    program = f"""
import os, sys
from pathlib import Path
import naiad.navigator as nav
from naiad.convert.errors import ConvertError
folder = Path(nav.package.load({str(saved)!r}).conversion.work)
assert folder.is_relative_to({str(temporary)!r}) and folder.is_dir()
try:
    nav.package.load({__file__!r})
except ConvertError:
    assert len(os.listdir({str(temporary)!r})) == 1
else:
    sys.exit("a file that is no package was loaded")
if not os.fork():
    sys.exit()
os.wait()
assert folder.is_dir()
"""
    environment = os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == []


def test_a_program_that_loads_a_package_may_start_again(tmp_path: Path) -> None:
    saved, workspace = tmp_path / "double.nav", tmp_path / "workspace"
    nav.package.save(measured_package(tmp_path), saved)
    nav.package.load(saved, workspace)
    (workspace / "left").touch()
    assert nav.package.load(saved, workspace).get_best_model_status() is not None
    assert not (workspace / "left").exists()
    inside = saved.rename(workspace / "inside.nav")
    with pytest.raises(ConvertError, match="not empty"):
        nav.package.load(inside, workspace)
    (workspace / "package.json").unlink()
    with pytest.raises(ConvertError, match="not empty"):
        nav.package.load(inside.rename(saved), workspace)
    with pytest.raises(ConvertError, match="no package"):
        nav.package.load(__file__, tmp_path / "new")


@pytest.mark.parametrize(
    ("kind", "framework"),
    [("torchscript", nav.Framework.TORCH), ("savedmodel", nav.Framework.TENSORFLOW), ("xgboost", nav.Framework.NONE)],
)
def test_a_package_names_the_framework_of_its_source(kind: str, framework: nav.Framework) -> None:
    assert nav.Package(Conversion("net", "net", "", described={"kind": kind})).framework is framework


def test_a_package_is_profiled_with_other_samples(tmp_path: Path) -> None:
    package = measured_package(tmp_path)
    results = nav.package.profile(
        package, [np.ones((1, 4), np.float32)], batch_sizes=[1, 3], window_size=4, throughput_cutoff_threshold=None
    )
    (found,) = results.models["python"].runners.values()
    assert found.status is nav.CommandStatus.OK
    assert [(one.batch_size, one.request_count >= 4, one.throughput > 0) for one in found.detailed[0]] == [
        (1, True, True),
        (3, True, True),
    ]
    results.to_file(tmp_path / "profile.yaml")
    written = yaml.safe_load((tmp_path / "profile.yaml").read_text())
    assert written == results.to_dict()
    assert [runner["status"] for runner in written["models"]["python"]["runners"].values()] == ["OK"]
    with pytest.raises(nav.exceptions.ModelNavigatorUserInputError, match="NaN"):
        nav.package.profile(package, [np.full((1, 4), np.nan, np.float32)])


@pytest.mark.slow
def test_without_a_backoff_the_first_batch_that_gains_too_little_is_the_last(tmp_path: Path) -> None:
    source = "import time\ndef double(x):\n    time.sleep(0.02 * max(len(x) / 2, 1))\n    return {'y': 2 * x}\n"
    package = measured_package(tmp_path)
    (tmp_path / "double.py").write_text(source, encoding="utf-8")
    results = nav.package.profile(
        package,
        [np.ones((1, 4), np.float32)],
        batch_sizes=[1, 2, 4, 8],
        window_size=5,
        throughput_cutoff_threshold=0.4,
        throughput_backoff_limit=0,
    )
    (found,) = results.models["python"].runners.values()
    assert [one.batch_size for one in found.detailed[0]] == [1, 2, 4]


def test_a_format_that_fails_is_said_to_fail(tmp_path: Path) -> None:
    package = measured_package(tmp_path)
    (tmp_path / "double.py").write_text("def double(x):\n    raise ValueError('no')\n", encoding="utf-8")
    (runner,) = nav.package.profile(package, [np.ones((1, 4), np.float32)]).models["python"].runners.values()
    assert (runner.status.value, runner.detailed) == ("FAIL", {0: []})


def test_arguments_that_are_no_tensors_become_a_part_of_the_model() -> None:
    torch = pytest.importorskip("torch")

    def total(pair: Any, scale: int, more: Any) -> Any:
        return (pair[0] + pair[1]) * scale + more["bias"]

    element = ((torch.ones(2), torch.full((2,), 2.0)), 10, {"bias": torch.full((2,), 0.5)})
    tensors, structure = nested.take_apart(element)
    assert list(tensors) == ["input__0_0", "input__0_1", "input__2_bias"]
    assert nested.is_nested(structure) and not nested.is_nested(nested.take_apart((torch.ones(2),))[1])
    assert nested.of_tensors(total, structure)(*tensors.values()).tolist() == [30.5, 30.5]
    other = (element[0], 11, element[2])
    with pytest.raises(ConvertError, match="sample 1 of the data loader differs"):
        list(nested.tensors_alone([element, other], structure))


def test_a_dictionary_that_comes_last_has_keyword_arguments() -> None:
    torch = pytest.importorskip("torch")

    class Scaled(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, *, bias: Any, scale: int = 1) -> Any:
            return scale * x + bias

    for last, found in (({"bias": torch.full((2,), 0.5), "scale": 3}, 3.5), ({"bias": torch.full((2,), 4.0)}, 5.0)):
        tensors, structure = nested.take_apart((torch.ones(2), last))
        assert nested.is_nested(structure)
        assert nested.of_tensors(Scaled(), structure)(*tensors.values()).tolist() == [found, found]


def test_an_adapter_has_what_triton_bind_takes(tmp_path: Path) -> None:
    adapter = nav.pytriton.PyTritonAdapter(package=measured_package(tmp_path))
    assert adapter.inputs == [Tensor((4,), np.float32, "x")]
    assert adapter.outputs == [Tensor((4,), np.float32, "y")]
    assert (adapter.config.batching, adapter.config.max_batch_size) == (True, 8)
    assert adapter.config.batcher == nav.pytriton.DynamicBatcher(max_queue_delay_microseconds=0)
    assert nav.pytriton.QueuePolicy().timeout_action is nav.pytriton.TimeoutAction.REJECT
    with adapter.runner as runner:
        assert runner.infer({"x": np.ones((1, 4), np.float32)})["y"].tolist() == [[2, 2, 2, 2]]


def test_an_empty_package_has_errors_that_the_originals_scripts_catch(tmp_path: Path) -> None:
    package = nav.Package(Conversion("net", "net", str(tmp_path)))
    with pytest.raises(nav.exceptions.ModelNavigatorRuntimeAnalyzerError, match="no runner") as caught:
        package.get_runner()
    assert caught.value.message == str(caught.value)
    with pytest.raises(nav.exceptions.ModelNavigatorRuntimeAnalyzerError, match="nothing to serve"):
        nav.pytriton.PyTritonAdapter(package)
    with pytest.raises(nav.exceptions.ModelNavigatorEmptyPackageError):
        nav.triton.model_repository.add_model_from_package(tmp_path, "net", package)
    with pytest.raises(nav.exceptions.ModelNavigatorEmptyPackageError):
        nav.package.optimize(package, workspace=tmp_path / "work")
    with pytest.raises(nav.exceptions.ModelNavigatorUserInputError, match="no samples"):
        nav.package.optimize(package, workspace=tmp_path / "work", fail_on_empty=False)
    assert issubclass(nav.exceptions.ModelNavigatorEmptyPackageError, nav.exceptions.ModelNavigatorError)


@pytest.mark.slow
def test_a_live_function_is_pickled_into_a_python_model(tmp_path: Path) -> None:
    factor = 3

    def tripled(x: Any) -> Any:
        return {"y": factor * x}

    (tmp_path / "source.pkl").write_bytes(cloudpickle.dumps(tripled))
    tensor = {"dtype": "float32", "shape": [-1, 4]}
    signature = {"inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}]}
    version = tmp_path / "models" / "tripled" / "1"
    version.mkdir(parents=True)
    made = python_model.write(
        f"pickle:{tmp_path / 'source.pkl'}",
        {**signature, "is_batching": True, "by_name": True},
        str(version / "model.py"),
    )
    assert made["callable"] == f"pickle:{version / 'source.pkl'}"
    (version.parent / "config.pbtxt").write_text(
        'backend: "python"\nmax_batch_size: 4\n'
        'input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
        'output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n',
        encoding="utf-8",
    )
    with naiad.Server(model_repository=str(tmp_path / "models")) as server:
        (response,) = server.model("tripled").infer(inputs={"x": np.ones((1, 4), np.float32)})
        assert response.outputs["y"].numpy().tolist() == [[3, 3, 3, 3]]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_function_of_an_imported_module_is_served_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = tmp_path / "modules" / "own_functions"
    modules.mkdir(parents=True)
    (modules / "__init__.py").touch()
    (modules / "factors.py").write_text("FACTOR = 7\n", encoding="utf-8")
    (modules / "times.py").write_text(
        "from own_functions import factors\n\ndef times(x):\n    return {'y': factors.FACTOR * x}\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(modules.parent))
    package = nav.python.optimize(
        model=importlib.import_module("own_functions.times").times,
        dataloader=[np.ones((2, 4), np.float32)],
        input_names=("x",),
        optimization_profile=nav.OptimizationProfile(batch_sizes=[1], stability_percentage=90),
        workspace=tmp_path / "work",
    )
    nav.triton.model_repository.add_model_from_package(tmp_path / "models", "times", package)
    shutil.rmtree(modules)
    for name in [name for name in sys.modules if name.startswith("own_functions")]:
        monkeypatch.delitem(sys.modules, name)
    with naiad.Server(model_repository=str(tmp_path / "models")) as server:
        (response,) = server.model("times").infer(inputs={"x": np.ones((1, 4), np.float32)})
        assert response.outputs["y"].numpy().tolist() == [[7, 7, 7, 7]]


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
    with pytest.raises(FileExistsError, match="already"):
        nav.triton.model_repository.add_model(
            tmp_path / "models", "double", tmp_path / "double.onnx", nav.triton.ONNXModelConfig()
        )


MODEL_WITH_MODULE = """
import triton_python_backend_utils as pb_utils
from factors import FACTOR

class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", FACTOR * row)]) for row in rows]
"""


def test_the_folder_of_a_python_model_becomes_its_version(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.py").write_text(MODEL_WITH_MODULE, encoding="utf-8")
    (source / "factors.py").write_text("import numpy as np\nFACTOR = np.float32(5)\n", encoding="utf-8")
    config = nav.triton.PythonModelConfig(
        inputs=[nav.triton.InputTensorSpec("x", (2,), np.float32)],
        outputs=[nav.triton.OutputTensorSpec("y", (2,), np.float32)],
    )
    folder = nav.triton.model_repository.add_model(tmp_path / "models", "times", source, config)
    assert sorted(path.name for path in (folder / "1").iterdir()) == ["factors.py", "model.py"]
    with naiad.Server(model_repository=str(tmp_path / "models")) as server:
        (response,) = server.model("times").infer(inputs={"x": np.ones((1, 2), np.float32)})
        assert response.outputs["y"].numpy().tolist() == [[5, 5]]


def test_the_folder_of_a_savedmodel_is_the_model(tmp_path: Path) -> None:
    source = tmp_path / "saved"
    source.mkdir()
    (source / "saved_model.pb").touch()
    folder = nav.triton.model_repository.add_model(
        tmp_path / "models", "saved", source, nav.triton.TensorFlowModelConfig()
    )
    assert (folder / "1" / "model.savedmodel" / "saved_model.pb").is_file()


def test_add_model_refuses_what_is_no_model_and_no_configuration(tmp_path: Path) -> None:
    add: Any = nav.triton.model_repository.add_model
    with pytest.raises(FileNotFoundError, match=r"there is no .*net\.onnx"):
        add(tmp_path / "models", "net", tmp_path / "net.onnx", nav.triton.ONNXModelConfig())
    (tmp_path / "net.onnx").touch()
    with pytest.raises(nav.exceptions.ModelNavigatorWrongParameterError, match="a configuration of type dict"):
        add(tmp_path / "models", "net", tmp_path / "net.onnx", {"max_batch_size": 8})
    assert not (tmp_path / "models").exists()


def onnx_package(folder: Path, factor: int) -> nav.Package:
    """A package with one measured format: an ONNX file that multiplies rows of two."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    constant = onnx.numpy_helper.from_array(np.array(factor, np.float32), "factor")
    node = onnx.helper.make_node("Mul", ["x", "factor"], ["y"])
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "scaled", tensors[:1], tensors[1:], [constant])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    file = folder / "onnx" / "model" / "model.onnx"
    file.parent.mkdir(parents=True)
    onnx.save(made, file)
    write_samples([{"x": np.ones((1, 2), np.float32)}], folder / "samples")
    tensor = {"dtype": "float32", "shape": [-1, 2]}
    signature = {"inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}]}
    result = FormatResult(
        "onnx",
        made={"file": str(file), "inputs": ["x"], "outputs": ["y"]},
        verified={"is_good": True},
        measured=BatchLevels([BatchLevel(1, 10, 1, 1, 1), BatchLevel(4, 40, 1, 1, 1)]),
    )
    described = {"signature": {**signature, "is_batching": True, "by_name": True}}
    return nav.Package(Conversion("scaled", "scaled", str(folder), described=described, formats=[result]))


@pytest.mark.slow
def test_another_version_joins_the_model_that_is_there(tmp_path: Path) -> None:
    add = nav.triton.model_repository.add_model_from_package
    add(tmp_path / "models", "scaled", onnx_package(tmp_path / "two", 2))
    with pytest.raises(ConvertError, match="give another model_version"):
        add(tmp_path / "models", "scaled", onnx_package(tmp_path / "other", 5))
    folder = add(
        tmp_path / "models", "scaled", onnx_package(tmp_path / "three", 3), model_version=2, response_cache=True
    )
    assert sorted(one.name for one in (tmp_path / "models").iterdir()) == ["scaled"]
    assert sorted(one.name for one in folder.iterdir()) == ["1", "2", "config.pbtxt", "warmup"]
    assert "response_cache" in (folder / "config.pbtxt").read_text()
    with naiad.Server(model_repository=str(tmp_path / "models")) as server:
        (response,) = server.model("scaled").infer(inputs={"x": np.ones((1, 2), np.float32)})
        assert response.outputs["y"].numpy().tolist() == [[3, 3]]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_formats_that_the_model_cannot_become_are_refused(tmp_path: Path) -> None:
    file = onnx_package(tmp_path, 2).get_model_path("onnx")
    with pytest.raises(nav.exceptions.ModelNavigatorConfigurationError, match=r"a model of onnx cannot become torchs"):
        nav.onnx.optimize(
            model=file,
            dataloader=[np.ones((1, 2), np.float32)],
            target_formats=(nav.Format.TORCHSCRIPT,),
            optimization_profile=nav.OptimizationProfile(batch_sizes=[1]),
            workspace=tmp_path / "work",
        )


SCRIPT = """
import torch
import naiad.navigator as nav

class Doubled(torch.nn.Module):
    def forward(self, x):
        return 2 * x

if __name__ == "__main__":
    package = nav.torch.optimize(
        model=Doubled(),
        dataloader=[torch.ones(3, 5)],
        target_formats=("torchscript-script",),
        optimization_profile=nav.OptimizationProfile(batch_sizes=[1], stability_percentage=90),
    )
    print([(result.target, result.state, str(result.failure)) for result in package.conversion.formats])
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_module_of_the_script_itself_becomes_torchscript(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[('torchscript-script', 'ok', 'None')]", done.stderr


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
    profile = nav.OptimizationProfile(batch_sizes=[1], stability_percentage=90)
    with pytest.raises(nav.exceptions.ModelNavigatorUserInputError, match="another workspace"):
        nav.package.optimize(again, workspace=tmp_path / "again")
    other = nav.package.optimize(again, optimization_profile=profile, workspace=tmp_path / "other")
    assert [(result.target, result.state) for result in other.conversion.formats] == [("torchscript-trace", "ok")]
    assert other.get_model_path("torchscript-trace").is_relative_to(tmp_path / "other")

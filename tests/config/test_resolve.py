"""The way from a model's files to its specification."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from naiad.config.problems import ConfigProblemsError
from naiad.config.read import read_config
from naiad.config.resolve import finish, prepare, remarks
from naiad.config.source import ModelSource
from naiad.config.spec import AcceleratorSpec, BatchingSpec, InstanceGroupSpec
from naiad.gpus.usable import UsableGpus

FULL = """\
max_batch_size: 8
input { name: "A" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ 2, 2, -1 ] } optional: true }
input { name: "T" data_type: TYPE_STRING dims: [ 1 ] reshape { shape: [ ] } }
output { name: "B" data_type: TYPE_INT64 dims: [ -1 ] label_filename: "labels.txt" }
dynamic_batching { preferred_batch_size: [ 8, 2, 8 ] max_queue_delay_microseconds: 100 preserve_ordering: true }
instance_group [ { count: 1 }, { count: 3 passive: true } ]
optimization {
  graph { level: 1 }
  execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } cpu_execution_accelerator { name: "x" } }
}
parameters { key: "b" value { string_value: "2" } }
parameters { key: "a" value { string_value: "1" } }
metric_tags { key: "team" value: "vision" }
"""


TENSORS = """\
input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "B" data_type: TYPE_FP32 dims: [ 4 ] }
"""


def source(folder: Path, text: str | None, files: tuple[str, ...] = ("1/model.onnx",)) -> ModelSource:
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    if text is not None:
        (folder / "config.pbtxt").write_text(text)
    versions = {int(child.name): child for child in folder.iterdir() if child.is_dir()}
    return ModelSource(folder.name, folder, versions, folder / "config.pbtxt")


def test_full_specification(tmp_path: Path) -> None:
    prepared = prepare(source(tmp_path, FULL), 1)
    assert (prepared.backend, prepared.model_path) == ("onnxruntime", tmp_path / "1" / "model.onnx")
    spec = finish(prepared)
    assert (spec.name, spec.platform, spec.max_batch_size) == (tmp_path.name, "onnxruntime_onnx", 8)
    first, text, output = spec.inputs["A"], spec.inputs["T"], spec.outputs["B"]
    assert (first.dims, first.shape, first.reshape) == ((4, -1), (-1, 4, -1), (2, 2, -1))
    assert (first.optional, first.dtype.numpy) == (True, np.dtype("float32"))
    assert (text.reshape, text.dtype.wire, text.optional) == ((), "BYTES", False)
    assert (output.shape, output.label_filename, output.reshape) == ((-1, -1), "labels.txt", None)
    assert spec.batching == BatchingSpec((2, 8), 100_000, preserve_ordering=True)
    name = tmp_path.name
    assert spec.instance_groups == (
        InstanceGroupSpec(f"{name}_0", "KIND_CPU", 1),
        InstanceGroupSpec(f"{name}_1", "KIND_CPU", 3, passive=True),
    )
    assert spec.accelerators == (AcceleratorSpec("tensorrt", True), AcceleratorSpec("x", False))
    assert spec.graph_level == 1
    assert list(spec.parameters.items()) == [("a", "1"), ("b", "2")]
    assert spec.metric_tags == {"team": "vision"}


def test_bare_model(tmp_path: Path) -> None:
    spec = finish(prepare(source(tmp_path, None), 1))
    assert (spec.inputs, spec.batching, spec.graph_level, spec.instance_count) == ({}, None, None, 2)


def test_graph_level_zero_is_not_unset(tmp_path: Path) -> None:
    assert finish(prepare(source(tmp_path, "optimization { graph { } }"), 1)).graph_level == 0


def test_no_batch_dimension_means_no_batching(tmp_path: Path) -> None:
    model = source(tmp_path, "dynamic_batching { } input { name: 'A' data_type: TYPE_BOOL dims: [ 2 ] }")
    spec = finish(prepare(model, 1))
    assert spec.batching is None
    assert spec.inputs["A"].shape == (2,)


def test_versions_do_not_share_a_message(tmp_path: Path) -> None:
    model = source(tmp_path, "max_batch_size: 2", ("1/model.onnx", "2/model.onnx"))
    read = read_config(model)
    first, second = prepare(model, 1, read=read), prepare(model, 2, read=read)
    first.config.max_batch_size = 64
    assert (second.config.max_batch_size, read.config.max_batch_size, read.config.backend) == (2, 2, "")
    assert second.model_path == tmp_path / "2" / "model.onnx"


def test_backend_without_a_file(tmp_path: Path) -> None:
    prepared = prepare(source(tmp_path, 'backend: "identity"', ("1/readme",)), 1)
    assert prepared.model_path == prepared.version_directory == tmp_path / "1"


def test_single_file(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    prepared = prepare(ModelSource("net", versions={1: tmp_path}, single_file=file), 1)
    assert (prepared.model_path, prepared.version_directory) == (file, None)
    assert finish(prepared).default_model_filename == "net.onnx"


def test_all_problems_at_once(tmp_path: Path) -> None:
    text = 'name: "other"\nmax_batch_size: -1\ninput { name: "A" }\nruntime: "libtriton_other.so"\n'
    with pytest.raises(ConfigProblemsError) as caught:
        finish(prepare(source(tmp_path, text), 1))
    problems = caught.value.problems
    assert [problem.line for problem in problems] == [1, 2, 3, 3, 4]
    assert str(caught.value) == str(problems[0])
    assert caught.value.located().splitlines()[1].startswith(f"{tmp_path}/config.pbtxt:2: 'max_batch_size' must be")


def test_an_ensemble_is_refused_before_any_backend(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblemsError, match="must specify 'step' for ensemble") as caught:
        prepare(source(tmp_path, 'platform: "ensemble"\nensemble_scheduling { }'), 1)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("config", "backend"),
    [
        ('runtime: "libtriton_identity.so"', "identity"),
        ('backend: "identity" runtime: "libtriton_identity.so"', "identity"),
        ('backend: "of_ours" runtime: "libtriton_identity.so"', "identity"),
    ],
)
def test_a_runtime_that_is_the_library_of_a_known_backend(tmp_path: Path, config: str, backend: str) -> None:
    model = source(tmp_path, f"{config} {TENSORS}", ("1/data",))
    prepared = prepare(model, 1)
    assert prepared.backend == backend
    finish(prepared)


@pytest.mark.parametrize(
    "config",
    ['backend: "identity" runtime: "libtriton_other.so"', 'backend: "python" runtime: "libtriton_identity.so"'],
)
def test_a_runtime_that_is_another_library(tmp_path: Path, config: str) -> None:
    with pytest.raises(ConfigProblemsError, match=r"'runtime' of model .* asks for backends from shared libraries"):
        finish(prepare(source(tmp_path, f"{config} {TENSORS}", ("1/data",)), 1))


def test_settings_without_effect_are_remarked_upon_with_their_place(tmp_path: Path) -> None:
    control = 'metric_identifier { family: "up" }\nhistogram_options { buckets: 1 }'
    text = f'backend: "onnxruntime" {TENSORS} parameters {{ key: "team" value {{ }} }} model_metrics {{\n'
    prepared = prepare(source(tmp_path, f"{text}metric_control {{ {control} }} }}"), 1)
    finish(prepared)
    by_parameter, by_family = remarks(prepared)
    assert "parameter 'team'" in by_parameter
    assert re.match(r".*/config\.pbtxt:\d+: Metric family 'up' in 'metric_identifier' of model ", by_family)


def test_an_accelerator_beside_a_gpu(tmp_path: Path) -> None:
    group = 'instance_group { kind: KIND_GPU profile: "1" %s }'
    device = "secondary_devices { kind: KIND_NVDLA device_id: 2 }"
    model = source(tmp_path, f'backend: "tensorrt" {TENSORS} ' + group % device, ("1/model.plan",))
    (found,) = finish(prepare(model, 1, gpus=lambda: UsableGpus((0,)))).instance_groups
    assert (found.dla, found.profile) == (2, ("1",))


def test_gpus(tmp_path: Path) -> None:
    model = source(tmp_path, "instance_group { count: 2 kind: KIND_GPU }")
    (group,) = finish(prepare(model, 1, gpus=lambda: UsableGpus((0, 1)))).instance_groups
    # ``count`` is per GPU.
    assert group.gpus == (0, 1) and group.count == 4 and [group.gpu(i) for i in range(4)] == [0, 1, 0, 1]
    with pytest.raises(ConfigProblemsError, match="no GPUs are available"):
        finish(prepare(model, 1))

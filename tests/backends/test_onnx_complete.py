from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from naiad.backends.onnx.backend import OnnxRuntimeBackend
from naiad.config.freeze import freeze
from naiad.errors import ConfigError, ModelLoadError
from support import onnx_models
from support.backend_contract import config, context, group, spec


def completed(path: Path, text: str = "", **settings: str) -> Any:
    message = config('backend: "onnxruntime" ' + text)
    backend = OnnxRuntimeBackend(context(path, **settings))
    backend.complete(message)
    backend.close()
    return message


def shape_of(entries: Any) -> list[tuple[str, str, list[int]]]:
    enum = entries[0].DESCRIPTOR.fields_by_name["data_type"].enum_type
    return [(t.name, enum.values_by_number[t.data_type].name, list(t.dims)) for t in entries]


def test_an_empty_configuration_is_filled_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = onnx_models.double(tmp_path / "m.onnx", ("batch", 3, "width"), ("batch", None, 7))
    with caplog.at_level(logging.DEBUG, "naiad"):
        message = completed(path)
    assert message.max_batch_size == 4
    assert message.WhichOneof("scheduling_choice") == "dynamic_batching"
    assert shape_of(message.input) == [("X", "TYPE_FP32", [3, -1])]
    assert shape_of(message.output) == [("Y", "TYPE_FP32", [3, 7])]  # onnxruntime infers the 3
    assert (
        "autofilled max_batch_size to 4 for model 'm' since batching is supported but no max_batch_size is specified"
        in caplog.text
    )
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG], "nothing is wrong"


@pytest.mark.parametrize("wire", sorted(onnx_models.ONNX_TYPES))
def test_types_are_filled_in(tmp_path: Path, wire: str) -> None:
    message = completed(onnx_models.echo(tmp_path / "m.onnx", wire))
    kind = "TYPE_STRING" if wire == "BYTES" else f"TYPE_{wire}"
    assert shape_of(message.input) == [("A", kind, [3]), ("B", kind, [3])]


def test_the_default_batch_size_is_a_setting(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    assert completed(path, default_max_batch_size="16").max_batch_size == 16
    alone = completed(path, default_max_batch_size="1")
    assert (alone.max_batch_size, alone.WhichOneof("scheduling_choice")) == (1, None)
    none = completed(path, default_max_batch_size="0")
    assert (none.max_batch_size, list(none.input[0].dims)) == (0, [-1, 3])
    with pytest.raises(ModelLoadError, match="'default-max-batch-size' is \"x\""):
        completed(path, default_max_batch_size="x")


@pytest.mark.parametrize("shape", [(1, 3), (), None])
def test_a_model_that_cannot_batch_stays_so(tmp_path: Path, shape: tuple[int, ...] | None) -> None:
    path = onnx_models.double(tmp_path / "m.onnx", shape, shape)
    message = completed(path)
    assert message.max_batch_size == 0 and message.WhichOneof("scheduling_choice") is None
    assert list(message.input[0].dims) == list(shape or (1,))
    with pytest.raises(ConfigError) as caught:
        completed(path, "max_batch_size: 2")
    assert str(caught.value) == (
        "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified"
    )


def test_one_output_without_a_batch_axis_means_no_batching(tmp_path: Path) -> None:
    assert completed(onnx_models.double(tmp_path / "m.onnx", ("N", 3), (2, 3))).max_batch_size == 0


def test_a_batch_of_scalars_gets_a_reshape(tmp_path: Path) -> None:
    message = completed(onnx_models.double(tmp_path / "m.onnx", ("N",), ("N",)))
    assert list(message.input[0].dims) == [1]
    assert message.input[0].HasField("reshape") and not message.input[0].reshape.shape


def test_what_is_set_stays(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    kept = completed(path, "max_batch_size: 7 dynamic_batching { max_queue_delay_microseconds: 5 }")
    assert kept.max_batch_size == 7 and kept.dynamic_batching.max_queue_delay_microseconds == 5
    sequence = completed(path, "max_batch_size: 7 sequence_batching { }")
    assert sequence.WhichOneof("scheduling_choice") == "sequence_batching"


def test_inputs_and_outputs_are_filled_on_their_own(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    given = completed(path, 'input { name: "X" data_type: TYPE_FP32 dims: -1 }')
    assert (list(given.input[0].dims), shape_of(given.output)) == ([-1], [("Y", "TYPE_FP32", [3])])
    given = completed(path, 'output { name: "Y" data_type: TYPE_FP32 dims: -1 }')
    assert (shape_of(given.input), list(given.output[0].dims)) == ([("X", "TYPE_FP32", [3])], [-1])


BOTH = """input { name: "X" data_type: TYPE_FP32 dims: [ 3 ] } output { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] }"""


@pytest.mark.parametrize("batch", ["", "max_batch_size: 7 "])
def test_nothing_is_added_to_a_configuration_with_inputs_and_outputs(tmp_path: Path, batch: str) -> None:
    """Above all no dynamic batching: such a model runs requests one by one, as those who wrote it expect."""
    path = onnx_models.double(tmp_path / "m.onnx")
    assert completed(path, batch + BOTH) == config('backend: "onnxruntime" ' + batch + BOTH)


def test_full_shapes_in_the_configuration_mean_no_batching(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    message = completed(path, 'input { name: "X" data_type: TYPE_FP32 dims: [ -1, 3 ] }')
    assert message.max_batch_size == 0
    assert shape_of(message.output) == [("Y", "TYPE_FP32", [-1, 3])]


def test_an_accelerator_is_refused(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    with pytest.raises(ModelLoadError, match="'tensorrt'"):
        completed(path, 'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }')


@pytest.mark.parametrize(
    ("groups", "count"), [("", 2), ("instance_group { count: 3 kind: KIND_CPU } ", 3), ("instance_group { } ", 2)]
)
def test_the_model_is_read_from_disk_once(tmp_path: Path, groups: str, count: int) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    message = config(groups)
    backend = OnnxRuntimeBackend(context(path, cores=2))
    backend.complete(message)
    path.unlink()
    del message.instance_group[:]
    message.instance_group.add(name="m", kind=2, count=count)
    model = freeze_with_preferred(message)
    backend.start(model)
    instances = [backend.create_instance(group(model), index) for index in range(count)]
    assert len(instances) == count
    backend.close()


def freeze_with_preferred(message: Any) -> Any:
    message.dynamic_batching.preferred_batch_size.append(message.max_batch_size)
    return freeze(message)


def test_other_settings_at_the_start_load_anew(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    message = config("")
    backend = OnnxRuntimeBackend(context(path, cores=2))
    backend.complete(message)
    path.unlink()
    model = spec('max_batch_size: 4 instance_group { name: "m" kind: KIND_CPU count: 1 }')
    with pytest.raises(ModelLoadError, match="there is no file"):
        backend.start(model)
    backend.close()

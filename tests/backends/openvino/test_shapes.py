"""Ranges, batches of models with a fixed one, and the dims of RESHAPE_IO_LAYERS."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if find_spec("openvino") is None:
    pytest.skip("the extra openvino is not installed", allow_module_level=True)

from naiad.errors import BackendError, InvalidArgumentError
from support import openvino_models as made
from support.openvino_backend import (
    answer,
    completed,
    described,
    loaded,
    parameters,
    reading_error,
    refusal,
    tensors,
)


def rows(count: int, width: int = 4) -> np.ndarray:
    return np.arange(count * width, dtype=np.float32).reshape(count, width)


# Auto-completion


def test_a_variable_first_axis_is_the_batch(tmp_path: Path) -> None:
    message = completed(made.save(tmp_path / "m.xml", made.linear((-1, 4))))
    assert message.max_batch_size == 4
    assert message.WhichOneof("scheduling_choice") == "dynamic_batching"
    assert described(message.input) == [("X", "TYPE_FP32", [4])]
    assert described(message.output) == [("Y", "TYPE_FP32", [3])]


@pytest.mark.parametrize("shape", [(2, 4), ()])
def test_a_fixed_shape_stays_without_a_batch(tmp_path: Path, shape: tuple[int, ...]) -> None:
    message = completed(made.save(tmp_path / "m.xml", made.double(shape)))
    assert message.max_batch_size == 0 and message.WhichOneof("scheduling_choice") is None
    assert described(message.input) == [("X", "TYPE_FP32", list(shape) or [1])]


def test_a_range_of_the_first_axis_limits_the_batch(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.double(((0, 100), 5)))
    assert completed(path).max_batch_size == 4
    assert completed(path, default_max_batch_size="1000").max_batch_size == 100
    text = reading_error(path, "max_batch_size: 101")
    assert "max_batch_size is 101, and input 'X' has the shape [..100,5]" in text and "max_batch_size: 100" in text


def with_layout(rows: int) -> Any:
    """A model with a fixed batch, whose layouts say which axis that is."""
    model = made.linear((rows, 4))
    for port in (*model.inputs, *model.outputs):
        port.get_node().layout = made.openvino.Layout("NC")
    return model


def test_a_layout_says_that_a_fixed_axis_is_the_batch(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", with_layout(2))
    message = completed(path)
    assert (message.max_batch_size, described(message.input)) == (4, [("X", "TYPE_FP32", [4])])
    with loaded(path, tensors("4", "3", 4)) as instance:
        assert answer(instance, rows(3)).tolist() == (rows(3) @ np.ones((4, 3), np.float32)).tolist()


def test_a_fixed_batch_becomes_one_row(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.linear((2, 4)))
    with loaded(path, tensors("4", "3", 1)) as instance:
        assert answer(instance, rows(1)).tolist() == (rows(1) @ np.ones((4, 3), np.float32)).tolist()


@pytest.mark.parametrize(
    ("size", "dims", "batch", "batches"),
    [(0, "4", 4, True), (7, "4", 7, True), (0, "-1, 4", 0, False)],
)
def test_a_layout_says_so_where_all_tensors_are_listed(
    tmp_path: Path, size: int, dims: str, batch: int, batches: bool
) -> None:
    path = made.save(tmp_path / "m.xml", with_layout(2))
    message = completed(path, tensors(dims, dims.replace("4", "3"), size).removeprefix('backend: "openvino" '))
    assert message.max_batch_size == batch
    assert message.HasField("dynamic_batching") is batches


@pytest.mark.parametrize("wire", sorted(made.TYPES))
def test_types_are_filled_in(tmp_path: Path, wire: str) -> None:
    path = made.save(tmp_path / "m.xml", made.echo({"A": "A"}, [wire], (-1, 3)))
    kind = "TYPE_STRING" if wire == "BYTES" else f"TYPE_{wire}"
    assert described(completed(path).input) == [("A", kind, [3])]


def test_a_type_that_the_protocol_lacks_is_named(tmp_path: Path) -> None:
    x = made.named(made.opset13.parameter([2, 4], made.openvino.Type.u4), "X")
    path = made.save(tmp_path / "m.xml", made.model([x], {"Y": made.opset13.convert(x, "f32")}))
    assert "input 'X' is u4, which cannot be served" in reading_error(path)
    assert "the model's type u4 is not a tensor type that can be served" in refusal(path, tensors("2, 4", "2, 4"))


# Ranges


def test_a_range_takes_all_sizes_in_it_and_no_other(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.double(((0, 100), 5)))
    with loaded(path, tensors("-1, 5", "-1, 5")) as instance:
        for count in (1, 100, 0, 7):
            assert answer(instance, rows(count, 5)).tolist() == (rows(count, 5) * 2).tolist()
        with pytest.raises(InvalidArgumentError, match=r"'X' \[101,5\] where the model has \[\.\.100,5\]"):
            answer(instance, rows(101, 5))
        assert answer(instance, rows(2, 5)).tolist() == (rows(2, 5) * 2).tolist()


def test_an_inner_axis_may_have_a_range(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.double((-1, (2, 4))))
    message = completed(path)
    assert described(message.input) == [("X", "TYPE_FP32", [-1])]
    with loaded(path, tensors("-1", "-1", 8)) as instance:
        assert answer(instance, rows(3, 2)).tolist() == (rows(3, 2) * 2).tolist()
        with pytest.raises(InvalidArgumentError, match=r"\[3,5\] where the model has \[\?,2\.\.4\]"):
            answer(instance, rows(3, 5))


# A fixed batch


def test_a_fixed_batch_is_reshaped(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.linear((1, 4)))
    with loaded(path, tensors("4", "3", 8)) as instance:
        for count in (8, 1, 5):
            assert (
                answer(instance, rows(count)).tolist()
                == made.run(path_of(tmp_path, count), {"X": rows(count)})["Y"].tolist()
            )


def path_of(folder: Path, count: int) -> Path:
    """The same model, exported for that batch."""
    return made.save(folder / f"batch_{count}.xml", made.linear((count, 4)))


def test_a_batch_that_cannot_be_reshaped_shows_both_sides(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.flat(4))
    text = refusal(path, tensors("4", "4", 8))
    assert "max_batch_size is 8, the model has a fixed batch (input 'X' [4,4]) and cannot be reshaped" in text
    assert "write max_batch_size: 0" in text
    assert 'max_batch_size: 4 and the parameter ENABLE_BATCH_PADDING: "YES"' in text


def test_whole_batches_run_where_the_batch_cannot_be_reshaped(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.flat(4))
    with loaded(path, tensors("4", "4", 4)) as instance:
        assert answer(instance, rows(4)).tolist() == (rows(4) * 2).tolist()
        with pytest.raises(BackendError, match=r"^expected requests with batch size '4', got '3'\.\.\. this error can"):
            answer(instance, rows(3))
    # No request can fill a batch that is larger than the configuration allows.
    assert "cannot be reshaped" in refusal(path, tensors("4", "4", 3))


def test_padding_fills_a_batch_that_cannot_be_reshaped(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.flat(4))
    for batch in (4, 3):
        with loaded(path, tensors("4", "4", batch) + parameters(ENABLE_BATCH_PADDING="YES")) as instance:
            for count in range(1, batch + 1):
                assert answer(instance, rows(count)).tolist() == (rows(count) * 2).tolist()


def test_without_dynamic_batches_only_full_ones_run(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.linear((-1, 4)))
    skips = tensors("4", "3", 3) + parameters(SKIP_OV_DYNAMIC_BATCHSIZE="YES")
    with loaded(path, skips) as instance:
        assert answer(instance, rows(3)).tolist() == (rows(3) @ np.ones((4, 3), np.float32)).tolist()
        with pytest.raises(
            BackendError, match=r"^expected requests with batch size '3', got '2'\.\.\. this error can be"
        ):
            answer(instance, rows(2))
    with loaded(path, skips + parameters(ENABLE_BATCH_PADDING="yes")) as instance:
        assert answer(instance, rows(2)).tolist() == (rows(2) @ np.ones((4, 3), np.float32)).tolist()


def test_strings_are_padded_too(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.echo({"X": "Y"}, ["BYTES"], (4, 1)))
    text = tensors("1", "1", 4, "TYPE_STRING") + parameters(SKIP_OV_DYNAMIC_BATCHSIZE="YES", ENABLE_BATCH_PADDING="YES")
    given = np.array([[b"a"], [b"\xff\xfe"]], object)
    with loaded(path, text) as instance:
        assert answer(instance, given).tolist() == given.tolist()


def test_a_scalar_has_no_batch(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.double(()))
    assert "input 'X' has the shape [], without a first axis" in refusal(path, tensors("1", "1", 2))


# Memory of inputs


@pytest.mark.parametrize("count", [3, 20_000])
def test_inputs_that_may_not_be_shared_as_they_are(tmp_path: Path, count: int) -> None:
    """Read-only ones, as those of a request's body, are copied while small; others with gaps always are."""
    path = made.save(tmp_path / "m.xml", made.double((-1, 4)))
    given = rows(count)
    read_only = np.frombuffer(given.tobytes(), np.float32).reshape(given.shape)
    apart = np.repeat(given, 2, axis=1)[:, ::2]
    with loaded(path, tensors("4", "4", 8)) as instance:
        for array in (read_only, apart, np.asfortranarray(given)):
            first = answer(instance, array)
            answer(instance, array + 1)
            assert np.array_equal(first, given * 2) and np.array_equal(array, given)


# RESHAPE_IO_LAYERS


def test_the_inputs_get_the_dims_of_the_configuration(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.double((1, 4)))
    assert "axis 1 is 5 where the model has 4" in refusal(path, tensors("1, 5", "1, 5"))
    text = tensors("-1, 5", "-1, 5") + parameters(RESHAPE_IO_LAYERS="yes")
    with loaded(path, text) as instance:
        for count in (1, 6):
            assert answer(instance, rows(count, 5)).tolist() == (rows(count, 5) * 2).tolist()
    message = completed(
        path, 'input { name: "X" data_type: TYPE_FP32 dims: [ -1, 7 ] } ' + parameters(RESHAPE_IO_LAYERS="yes")
    )
    assert described(message.output) == [("Y", "TYPE_FP32", [-1, 7])]


def test_dims_that_the_model_does_not_allow_show_both_sides(tmp_path: Path) -> None:
    path = made.save(tmp_path / "m.xml", made.linear((1, 4)))
    text = refusal(path, tensors("1, 5", "1, 3") + parameters(RESHAPE_IO_LAYERS="yes"))
    assert "'X' [1,4] to [1, 5]" in text and "the model does not allow it" in text


# State


def test_state_does_not_pass_from_one_request_to_the_next(tmp_path: Path) -> None:
    """Y is the sum of X and of all X before; of those before there are none."""
    opset = made.opset13
    x = made.parameter("X", "FP32", (1, 4))
    info = made.openvino.op.util.VariableInfo()
    info.data_shape, info.data_type, info.variable_id = (
        made.openvino.PartialShape([1, 4]),
        made.openvino.Type.f32,
        "sum",
    )
    variable = made.openvino.op.util.Variable(info)
    total = made.named(opset.add(x, opset.read_value(opset.constant(np.zeros((1, 4), np.float32)), variable)), "Y")
    kept = opset.assign(total, variable)
    path = made.save(tmp_path / "m.xml", made.openvino.Model([opset.result(total)], [kept], [x], "sum"))
    with loaded(path, tensors("1, 4", "1, 4")) as instance:
        for _ in range(3):
            assert answer(instance, rows(1)).tolist() == rows(1).tolist()

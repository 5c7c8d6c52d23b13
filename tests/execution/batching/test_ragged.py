"""Batches of unequal requests, put together and taken apart: tables from the specification, and properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.backend_api.backend import Instance
from naiad.backends.out_of_process.batch_codec import read_whole
from naiad.config.assembly import BatchAssembly, BatchInputSpec, PadSpec, UnpadSpec
from naiad.config.backend_view import as_backend_sees
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.ragged import (
    MAKERS,
    PaddedRows,
    assemble,
    assembled_bytes,
    joined_inputs,
    mask,
    padded,
    take_apart,
)
from naiad.execution.instances.runner import run_batch
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.gathered import write_gathered
from naiad.execution.worker.codec.writer import BatchWriter
from naiad.request import Array, InferRequest, RequestOptions
from naiad.tensor.dtypes import BY_WIRE
from naiad.worker.ipc.frame_body import locate
from naiad.worker.ipc.frames import FRAME, SCHEMA
from naiad.worker.ipc.schemas import read_schema
from naiad.worker.ipc.types import Place
from support.loaded_models import spec, tensor

FP32, INT32, INT64 = BY_WIRE["FP32"], BY_WIRE["INT32"], BY_WIRE["INT64"]


def request(outputs: Sequence[str] = ("y",), **inputs: Any) -> InferRequest:
    arrays = {name: np.asarray(value, np.float32) for name, value in inputs.items()}
    return InferRequest(RequestOptions(tuple(outputs), len(next(iter(arrays.values())))), arrays)


def model(found: BatchAssembly, dims: Sequence[int] = (-1,), out: Sequence[int] = (-1,)) -> ModelSpec:
    return replace(spec([tensor("x", dims=dims)], [tensor("y", dims=out)]), assembly=found)


# The example of the reference's page about ragged batching: three requests with 3, 4 and 5 elements.
SHAPES = [(1, 3), (1, 4), (1, 5)]
MADE: dict[str, list[Any]] = {
    "BATCH_ELEMENT_COUNT": [3, 4, 5],
    "BATCH_ACCUMULATED_ELEMENT_COUNT": [3, 7, 12],
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": [0, 3, 7, 12],
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": [0] * 5,
    "BATCH_ITEM_SHAPE": [[3], [4], [5]],
    "BATCH_ITEM_SHAPE_FLATTEN": [3, 4, 5],
}
# Requests that bring several rows, of rank two. Counts are those of requests, shapes those of rows.
LARGER = [(2, 3, 1), (1, 2, 2)]
MADE_OF_LARGER: dict[str, list[Any]] = {
    "BATCH_ELEMENT_COUNT": [6, 4],
    "BATCH_ACCUMULATED_ELEMENT_COUNT": [6, 10],
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": [0, 6, 10],
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": [0] * 6,
    "BATCH_ITEM_SHAPE": [[3, 1], [3, 1], [2, 2]],
    "BATCH_ITEM_SHAPE_FLATTEN": [3, 1, 3, 1, 2, 2],
}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("wire", ["INT32", "FP32"])
def test_inputs_made_of_shapes(kind: str, wire: str) -> None:
    for shapes, expected in ((SHAPES, MADE[kind]), (LARGER, MADE_OF_LARGER[kind])):
        dims = (-1,) * (len(shapes[0]) - 1)
        made = BatchInputSpec(kind, "made", BY_WIRE[wire], "x")
        spec_ = model(BatchAssembly(ragged=frozenset({"x"}), made=(made,)), dims)
        inputs = assemble(Batch([request(x=np.ones(shape)) for shape in shapes]), spec_)
        assert inputs["made"].tolist() == expected
        assert inputs["made"].dtype == BY_WIRE[wire].numpy
        assert inputs["x"].shape == (sum(int(np.prod(shape)) for shape in shapes),)


def test_every_kind_of_the_configuration_is_made() -> None:
    from naiad.config.messages import ModelConfig

    field = ModelConfig.DESCRIPTOR.fields_by_name["batch_input"].message_type.fields_by_name["kind"]
    assert set(MAKERS) == set(field.enum_type.values_by_name)


def test_ragged_inputs_are_one_row_of_elements_in_order() -> None:
    found = model(BatchAssembly(ragged=frozenset({"x"})))
    batch = Batch([request(x=[[1, 2, 3]]), request(x=[[4]]), request(x=[[5, 6], [7, 8]])])
    assert assemble(batch, found)["x"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert assemble(Batch([request(x=[[1, 2]])]), found)["x"].shape == (2,), "a lone request is flat, too"


def test_ragged_texts() -> None:
    found = model(BatchAssembly(ragged=frozenset({"x"})))
    texts = [request(x=[[0]]), request(x=[[0]])]
    for one, value in zip(texts, ([[b"a", b"bc"]], [[b""]]), strict=True):
        one.inputs = {"x": np.array(value, object)}
    assert assemble(Batch(texts), found)["x"].tolist() == [b"a", b"bc", b""]


def test_outputs_are_scattered_by_the_shapes_of_an_input() -> None:
    found = model(BatchAssembly(ragged=frozenset({"x"}), scattered={"y": "x"}))
    batch = Batch([request(x=[[1, 2, 3]]), request(x=[[4]]), request(x=[[5, 6], [7, 8]])])
    take_apart(batch, {"y": assemble(batch, found)["x"] * 10}, found)
    assert [part["y"].tolist() for part in batch.parts] == [[[10, 20, 30]], [[40]], [[50, 60], [70, 80]]]


def test_a_scattered_output_of_another_size_is_an_error() -> None:
    found = model(BatchAssembly(ragged=frozenset({"x"}), scattered={"y": "x"}))
    batch = Batch([request(x=[[1, 2, 3]]), request(x=[[4]])])
    with pytest.raises(BackendError, match=r"'y' with 3 elements.*input 'x', which has 4"):
        take_apart(batch, {"y": np.zeros(3, np.float32)}, found)
    with pytest.raises(BackendError, match="no output 'y'"):
        take_apart(batch, {}, found)
    with pytest.raises(BackendError, match="as FP64"):
        take_apart(batch, {"y": np.zeros(4)}, found)


def test_each_gets_the_outputs_that_it_asked_the_model_for() -> None:
    """They share a run, which has the outputs of both."""
    pads = {"x": PadSpec((0,), 0.0)}
    both = replace(
        spec([tensor("x", dims=(-1,))], [tensor("y", dims=(-1,)), tensor("z", dims=(1,))]),
        assembly=BatchAssembly(pads=pads, unpads={"y": UnpadSpec("x", (0,))}),
    )
    batch = Batch([request(["y"], x=[[1]]), request(["z"], x=[[1, 2]])])
    assert set(batch.outputs) == {"y", "z"}
    whole = assemble(batch, both)["x"]
    take_apart(batch, {"y": whole, "z": whole.sum(1, keepdims=True)}, both)
    assert batch.parts[0]["y"].tolist() == [[1]]
    assert batch.parts[1]["z"].tolist() == [[3]]


# Padding


@pytest.mark.parametrize(
    ("pad", "sizes", "expected"),
    [
        (PadSpec((0,), 0), [3, 5], 5),
        (PadSpec((0,), 0, multiple=8), [3, 5], 8),
        (PadSpec((0,), 0, multiple=8), [8, 5], 8),
        (PadSpec((0,), 0, multiple=8), [9], 16),
        (PadSpec((0,), 0, buckets=(16, 32)), [3, 5], 16),
        (PadSpec((0,), 0, buckets=(16, 32)), [16, 17], 32),
    ],
)
def test_what_items_are_padded_to(pad: PadSpec, sizes: list[int], expected: int) -> None:
    arrays = [np.ones((1, size), np.float32) for size in sizes]
    assert padded(arrays, pad).shape == (len(sizes), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool, object])
def test_the_padding_has_the_value_and_the_type(dtype: Any) -> None:
    value = {object: b"?", bool: True}.get(dtype, 7)
    arrays = [np.zeros((2, 1), dtype), np.zeros((1, 3), dtype)]
    found = padded(arrays, PadSpec((0,), value)).array()
    assert found.dtype == np.dtype(dtype)
    assert found[0, 1] == found[1, 2] == value
    assert not found[2].any()


def test_the_mask_says_what_is_a_requests_own() -> None:
    arrays = [np.zeros((2, 1), np.float32), np.zeros((1, 3), np.float32)]
    found = mask(arrays, PadSpec((0,), 0, mask="m", mask_dtype=INT64))
    assert found.dtype == np.int64
    assert found.tolist() == [[1, 0, 0], [1, 0, 0], [1, 1, 1]]


def test_two_padded_dims_beside_a_fixed_one() -> None:
    arrays = [np.ones((1, 2, 3, 4), np.float32), np.ones((1, 3, 3, 1), np.float32)]
    pad = PadSpec((0, 2), -1.0, mask="m")
    found = padded(arrays, pad).array()
    assert found.shape == (2, 3, 3, 4)
    assert found[0, 2, 0, 0] == found[1, 0, 0, 1] == -1
    assert (found == 1).sum() == 2 * 3 * 4 + 3 * 3
    assert mask(arrays, pad).sum() == 2 * 4 + 3


def test_padding_counts_as_bytes_of_a_batch() -> None:
    requests = [request(x=np.zeros((1, 1000))), request(x=np.zeros((3, 10)))]
    plain = sum(r.held_bytes for r in requests)
    assert assembled_bytes(requests, None) == plain == 4 * 1030
    assert assembled_bytes(requests, BatchAssembly(pads={"x": PadSpec((0,), 0)})) == 4 * 4000


def test_an_output_that_is_too_short_to_be_cut_is_an_error() -> None:
    found = model(BatchAssembly(pads={"x": PadSpec((0,), 0)}, unpads={"y": UnpadSpec("x", (0,))}))
    batch = Batch([request(x=[[1, 2, 3]]), request(x=[[4]])])
    with pytest.raises(BackendError, match=r"'y' with shape \[2, 2\], and a request has 3 in dim 0"):
        take_apart(batch, {"y": np.zeros((2, 2), np.float32)}, found)


@pytest.mark.parametrize(
    ("scale", "own", "size"), [("1", 7, 7), ("1/4", 7, 2), ("1/4", 8, 2), ("3", 2, 6), ("3/2", 3, 5)]
)
def test_scaled_outputs_are_rounded_up(scale: str, own: int, size: int) -> None:
    assert UnpadSpec("x", (0,), Fraction(scale)).sizes([own, 0]) == [size, 0]


# Properties: a batch gives each request what it gets alone.


class Function(Instance):
    def __init__(self, function: Any) -> None:
        self.function = function
        self.runs = 0

    def execute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        self.runs += 1
        return self.function(inputs)


def answers(function: Any, requests: list[InferRequest], found: ModelSpec) -> list[list[Any]]:
    """What each request gets of the output ``y`` when they run together."""
    (done,) = run_batch(Function(function), Batch(requests), found)
    assert done.error is None, done.error
    parts = done.parts or (done.results,)
    return [part["y"].tolist() for part in parts]


sizes = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=8)
targets = st.sampled_from([{}, {"multiple": 4}, {"buckets": (2, 5, 9)}])


def numbered(shapes: Sequence[tuple[int, ...]]) -> list[InferRequest]:
    found, at = [], 1
    for shape in shapes:
        count = int(np.prod(shape))
        found.append(request(x=np.arange(at, at + count).reshape(shape)))
        at += count
    return found


@given(sizes, targets)
def test_padding_that_a_model_does_not_mind_changes_nothing(shapes: list[tuple[int, int]], target: Any) -> None:
    """Running sums along the padded dim: zeros behind the end change nothing in front of it."""
    found = model(
        BatchAssembly(pads={"x": PadSpec((0,), 0.0, **target)}, unpads={"y": UnpadSpec("x", (0,))}),
    )
    requests = numbered(shapes)
    together = answers(lambda inputs: {"y": inputs["x"].cumsum(1, dtype=np.float32)}, requests, found)
    assert together == [r.inputs["x"].cumsum(1, dtype=np.float32).tolist() for r in requests]


@given(sizes, targets)
def test_a_model_with_a_mask_minds_no_value(shapes: list[tuple[int, int]], target: Any) -> None:
    pad = PadSpec((0,), 1e9, mask="m", mask_dtype=FP32, **target)
    found = model(BatchAssembly(pads={"x": pad}), out=(1,))
    requests = numbered(shapes)
    together = answers(lambda i: {"y": (i["x"] * i["m"]).sum(1, keepdims=True, dtype=np.float32)}, requests, found)
    assert together == [r.inputs["x"].sum(1, keepdims=True, dtype=np.float32).tolist() for r in requests]


@given(sizes)
def test_ragged_batches_give_each_its_own(shapes: list[tuple[int, int]]) -> None:
    found = model(BatchAssembly(ragged=frozenset({"x"}), scattered={"y": "x"}))
    requests = numbered(shapes)
    assert answers(lambda i: {"y": i["x"] + 1}, requests, found) == [(r.inputs["x"] + 1).tolist() for r in requests]


def received(batch: Batch, found: ModelSpec) -> Batch:
    """A batch as a framework's worker gets it."""
    view = as_backend_sees(found)
    frames: list[OutgoingFrame] = []
    write_gathered(BatchWriter(view), view, 1, joined_inputs(batch, found), batch.outputs, frames)
    schemas, payload = {}, bytearray()
    for whole, _ in frames:
        kind, _, number = FRAME.unpack_from(whole)
        payload = bytearray(whole[FRAME.size :])
        if kind == SCHEMA:
            schemas[number] = read_schema(payload)
    return read_whole(payload, schemas, partial(locate, no_segment), view, no_parts)


def no_segment(number: int, offset: int, size: int) -> Array:
    raise AssertionError("so little travels in the frame")


def no_parts(parts: list[Place], size: int) -> Place:
    raise AssertionError("so little is gathered by the server")


@given(sizes)
def test_padding_is_written_where_it_is_wanted(shapes: list[tuple[int, int]]) -> None:
    for dtype in (np.float32, np.bool_, ml_dtypes.bfloat16):
        arrays = [np.ones(shape, dtype) for shape in shapes]
        whole = padded(arrays, PadSpec((0,), 0, multiple=4))
        expected = whole.array()
        assert expected.shape == whole.shape
        (rows,) = whole.parts if len(whole.parts) == 1 else (None,)
        if isinstance(rows, PaddedRows):
            target = np.full(rows.nbytes, 255, np.uint8)
            rows.read_into(target.data)
            assert target.tobytes() == expected.tobytes() == rows.read().tobytes()
        else:
            assert {shape[1] for shape in shapes} == {whole.shape[1]}


@given(sizes)
def test_a_process_gets_the_same_batch_whole(shapes: list[tuple[int, int]]) -> None:
    """``write_gathered`` and the view of a backend: what is sent to a framework's worker, and what is done there."""
    pads = {"x": PadSpec((0,), 0.0, mask="m", mask_dtype=INT32)}
    made = (BatchInputSpec("BATCH_ITEM_SHAPE", "shapes", INT32, "x"),)
    found = model(BatchAssembly(pads=pads, made=made, unpads={"y": UnpadSpec("x", (0,))}))
    view = as_backend_sees(found)
    assert list(view.inputs) == ["x", "shapes", "m"]
    whole = received(Batch(numbered(shapes)), found)
    (sent,) = whole.requests
    assembled = assemble(Batch(numbered(shapes)), found)
    assert sent.inputs.keys() == assembled.keys()
    for name, array in sent.inputs.items():
        np.testing.assert_array_equal(array, assembled[name])
        assert array.dtype == view.inputs[name].dtype.numpy
        assert array.ndim == len(view.inputs[name].shape)
    (done,) = run_batch(Function(lambda i: {"y": i["x"] * 2}), whole, view)
    assert done.error is None
    batch = Batch(numbered(shapes))
    take_apart(batch, done.results, found)
    parts = batch.parts or (batch.results,)
    assert [p["y"].tolist() for p in parts] == [(r.inputs["x"] * 2).tolist() for r in batch.requests]


def test_what_is_reshaped_is_reshaped_once() -> None:
    """Before it is sent to a process, and on its way back to callers."""
    pads = {"x": PadSpec((0,), 0.0)}
    given_ = [tensor("x", dims=(-1,)), tensor("f", dims=(-1, 6), reshape=(2, -1, 3))]
    made = [tensor("y", dims=(-1, 6), reshape=(2, -1, 3))]
    found = replace(spec(given_, made), assembly=BatchAssembly(pads=pads))
    requests = [request(x=[[1]], f=np.arange(24).reshape((1, 4, 6))), request(x=[[1, 2]], f=np.ones((1, 4, 6)))]
    whole = received(Batch(list(requests)), found)
    (done,) = run_batch(Function(lambda i: {"y": i["f"] + i["x"].sum() * 0}), whole, as_backend_sees(found))
    assert done.error is None
    assert done.results["y"].shape == (2, 2, 4, 3)
    batch = Batch(list(requests))
    take_apart(batch, done.results, found)
    assert [p["y"].tolist() for p in batch.parts] == [r.inputs["f"].tolist() for r in requests]


def picky(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Gives x back as y, but fails for a batch with a negative number."""
    if (inputs["x"] < 0).any():
        raise RuntimeError("negative")
    return {"y": inputs["x"]}


@given(st.integers(1, 33), st.sets(st.integers(0, 32)))
def test_failed_batches_are_split_with_a_bound(count: int, bad: set[int]) -> None:
    """Every request is answered on its own merits, with at most 2n - 1 runs."""
    poisoned = {i for i in bad if i < count}
    plain = spec([tensor("x")], [tensor("y")], max_batch_size=64)

    requests = [request(x=[[-1.0 if i in poisoned else i]]) for i in range(count)]
    instance = Function(picky)
    done = run_batch(instance, Batch(list(requests)), plain)
    assert instance.runs <= 2 * count - 1
    failed = {id(r) for batch in done if batch.error is not None for r in batch.requests}
    answered = [id(r) for batch in done if batch.error is None for r in batch.requests]
    assert failed == {id(requests[i]) for i in poisoned}
    assert sorted(answered) == sorted(id(r) for i, r in enumerate(requests) if i not in poisoned)


def test_a_batch_that_is_not_to_be_split_fails_as_a_whole() -> None:
    plain = replace(spec([tensor("x")], [tensor("y")]), splits_failed=False)
    instance = Function(lambda inputs: {})
    (done,) = run_batch(instance, Batch([request(x=[[1]]), request(x=[[2]])]), plain)
    assert instance.runs == 1
    assert isinstance(done.error, BackendError)
    assert len(done.requests) == 2


def test_a_failed_padded_batch_is_split_into_padded_ones() -> None:
    found = model(BatchAssembly(pads={"x": PadSpec((0,), 0.0)}, unpads={"y": UnpadSpec("x", (0,))}))

    values = [[[1.0]], [[2.0, 3.0]], [[-1.0]], [[4.0, 5.0, 6.0]]]
    done = run_batch(Function(picky), Batch([request(x=v) for v in values]), found)
    got = [p["y"].tolist() for b in done if b.error is None for p in (b.parts or (b.results,))]
    assert got == [values[0], values[1], values[3]]


def test_texts_are_padded_with_texts() -> None:
    texts = [np.array([[b"a"]], object), np.array([[b"b", b"c"]], object)]
    assert padded(texts, PadSpec((0,), b"")).array().tolist() == [[b"a", b""], [b"b", b"c"]]

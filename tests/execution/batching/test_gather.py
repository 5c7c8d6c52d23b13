"""Requests to one batch and back."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from naiad.errors import BackendError
from naiad.execution.batching.batch import Batch
from naiad.execution.batching.gather import check_results, gather, is_small
from naiad.request import InferRequest, RequestOptions
from naiad.tensor.dtypes import DATATYPES
from support.loaded_models import spec, tensor

OUT = ("y",)


def request(inputs: dict[str, np.ndarray], rows: int, outputs: tuple[str, ...] = OUT) -> InferRequest:
    return InferRequest(RequestOptions(outputs, rows), inputs)


def batch_of(*arrays: np.ndarray) -> Batch:
    return Batch([request({"x": a}, len(a)) for a in arrays])


def result(rows: int, results: dict, outputs: list, **more: object) -> dict:
    model = spec(outputs=outputs, **more)
    wanted = tuple(t.name for t in outputs)
    return check_results(Batch([request({}, rows, wanted)]), results, model)


# In


@for_all(
    st.sampled_from(DATATYPES),
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from([1, 40, 3000]),
)
def test_gathering_is_concatenation(dtype: object, rows: list[int], dims: list[int], last: int) -> None:
    """Small joins take a way of their own, which must not show."""
    shape = (*dims, last)
    arrays = []
    for n in rows:
        count = n * math.prod(shape)
        flat = np.arange(count) % 2
        arrays.append(np.array([b"%d" % v for v in flat], object) if dtype.is_bytes else flat.astype(dtype.numpy))
        arrays[-1] = arrays[-1].reshape(n, *shape)
    found = gather(batch_of(*arrays), spec([tensor("x", dtype.wire, shape)]))["x"]
    expected = np.concatenate(arrays)
    assert (found.shape, found.dtype, found.tolist()) == (expected.shape, expected.dtype, expected.tolist())
    assert found.flags.aligned
    assert found.flags.c_contiguous


@pytest.mark.parametrize("which", [0, 1, 2], ids=["first", "last", "both"])
def test_tensors_that_do_not_lie_in_the_order_of_their_elements_are_joined_too(which: int) -> None:
    """A model before this one, such as a step of an ensemble, may have made them by transposing others."""
    plain, other = np.arange(12, dtype=np.float32).reshape(2, 1, 2, 3)
    turned = [other.transpose(0, 2, 1).copy().transpose(0, 2, 1) for other in (plain, other)]
    given = [turned[0] if which != 1 else plain, turned[1] if which != 0 else other]
    assert not all(array.flags.c_contiguous for array in given)
    assert np.array_equal(gather(batch_of(*given), spec())["x"], np.concatenate([plain, other]))


def test_every_request_gets_rows_of_its_own_memory() -> None:
    first, second = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    found = gather(batch_of(first, second), spec())["x"]
    first[:] = 9
    assert found.tolist() == [[1.0], [0.0]]


def test_one_request_is_not_copied() -> None:
    array = np.ones((2, 1), np.float32)
    assert gather(batch_of(array), spec())["x"] is array


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("requests", [1, 3])
def test_tensors_at_any_byte_become_aligned(offset: int, requests: int) -> None:
    body = bytearray(offset) + np.arange(4, dtype=np.float32).tobytes()
    view = np.ndarray((4, 1), np.float32, body, offset)
    found = gather(batch_of(*[view] * requests), spec())["x"]
    assert found.flags.aligned
    assert found.ravel().tolist() == [0.0, 1.0, 2.0, 3.0] * requests


@pytest.mark.parametrize(
    ("dims", "reshape", "batched", "given", "seen"),
    [
        ((4,), (2, 2), True, (3, 4), (3, 2, 2)),
        ((1,), (), True, (3, 1), (3,)),
        ((-1,), (-1, 1), True, (3, 5), (3, 5, 1)),
        ((-1, 2, -1), (2, -1, 1, -1), True, (3, 5, 2, 7), (3, 2, 5, 1, 7)),
        ((4,), (2, 2), False, (4,), (2, 2)),
        ((1, 2), (2,), False, (1, 2), (2,)),
        ((-1, 3), (1, -1, 3), False, (0, 3), (1, 0, 3)),
    ],
)
def test_reshaped_as_the_configuration_says(
    dims: tuple, reshape: tuple, batched: bool, given: tuple, seen: tuple
) -> None:
    model = spec(
        [tensor("x", dims=dims, batched=batched, reshape=reshape)],
        [tensor("y", dims=dims, batched=batched, reshape=reshape)],
        max_batch_size=8 if batched else 0,
    )
    array = np.arange(math.prod(given), dtype=np.float32).reshape(given)
    batch = Batch([request({"x": array}, given[0] if batched else 1)])
    inner = gather(batch, model)["x"]
    assert inner.shape == seen
    assert inner.ravel().tolist() == array.ravel().tolist()
    # And back again on the other side.
    outer = check_results(batch, {"y": inner}, model)["y"]
    assert outer.shape == given
    assert outer.ravel().tolist() == array.ravel().tolist()


def test_small_is_measured_over_all_inputs_and_requests() -> None:
    def batch(elements: int, requests: int) -> Batch:
        array = np.zeros((1, elements), np.uint8)
        return Batch([request({"a": array, "b": array}, 1) for _ in range(requests)])

    assert is_small(batch(1 << 15, 1))
    assert not is_small(batch((1 << 15) + 1, 1))
    assert not is_small(batch(1 << 14, 3))


# A batch


def test_a_batch_adds_rows_and_unites_outputs() -> None:
    batch = Batch([request({}, 2, ("a", "b")), request({}, 3, ("b", "c")), request({}, 1, ("a", "b"))])
    assert batch.rows == 6
    assert batch.outputs == ("a", "b", "c")


# Out


def test_what_was_not_wanted_is_left_out() -> None:
    array = np.zeros((2, 1), np.float32)
    assert list(result(2, {"y": array, "z": array}, [tensor("y")])) == ["y"]


def test_a_missing_output_is_named() -> None:
    with pytest.raises(BackendError) as caught:
        result(1, {"b": 1, "a": 2}, [tensor("y")])
    assert str(caught.value) == "model 'm' returned no output 'y', only ['a', 'b']"


@pytest.mark.parametrize(
    ("found", "shown"),
    [(np.float64, "FP64"), (np.int32, "INT32"), (object, "BYTES"), (ml_dtypes.bfloat16, "BF16"), (">f4", ">f4")],
)
def test_another_datatype_is_named(found: object, shown: str) -> None:
    with pytest.raises(BackendError) as caught:
        result(1, {"y": np.zeros((1, 1), found)}, [tensor("y")])
    assert str(caught.value) == f"model 'm' returned output 'y' as {shown}, but its configuration says FP32"


@pytest.mark.parametrize("shape", [(), (1, 1), (3,), (0, 2)])
def test_another_number_of_rows_is_named(shape: tuple) -> None:
    with pytest.raises(BackendError) as caught:
        result(2, {"y": np.zeros(shape, np.float32)}, [tensor("y")])
    assert str(caught.value) == (
        f"model 'm' returned output 'y' with shape {list(shape)} for a batch of 2: its first dimension must be the "
        "batch size"
    )


def test_without_batching_any_first_dimension_will_do() -> None:
    array = np.zeros((), np.float32)
    assert result(1, {"y": array}, [tensor("y", dims=(), batched=False)], max_batch_size=0)["y"] is array


def test_an_output_that_does_not_reshape_is_named() -> None:
    with pytest.raises(BackendError, match=r"shape \[2, 3\], which does not reshape to \[2, 4\]"):
        result(2, {"y": np.zeros((2, 3), np.float32)}, [tensor("y", dims=(4,), reshape=(2, 2))])


def test_a_batch_of_one_small_and_one_large_request_is_not_small() -> None:
    def rows(count: int) -> InferRequest:
        return InferRequest(RequestOptions(("OUT",), count), {"IN": np.zeros((count, 1024), np.float32)})

    assert is_small(Batch([rows(1), rows(2)]))
    assert not is_small(Batch([rows(1), rows(63)]))

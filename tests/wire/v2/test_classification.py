"""The texts of classes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.errors import InvalidArgumentError
from naiad.request import Outputs
from naiad.tensor.packed_bytes import is_packed, unpacked
from naiad.wire.v2.classification import MAX_TEXTS, Classes, LargeClassesError

AT_ONCE = 1000
NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64", ml_dtypes.bfloat16)


def classes(count: int, *labels: bytes, batches: bool = False) -> Classes:
    return Classes({"A": count}, {"A": labels}, batches, AT_ONCE)


def texts(array: np.ndarray, count: int, *labels: bytes, batches: bool = False) -> list[object]:
    return classes(count, *labels, batches=batches).apply({"A": array})["A"].tolist()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_integers_are_written_as_they_are(dtype: str) -> None:
    info = np.iinfo(dtype)
    found = texts(np.array([3, info.min, info.max], dtype), 3)
    assert found == [b"%d:2" % info.max, b"3:0", b"%d:1" % info.min]


@pytest.mark.parametrize("dtype", FLOATS)
def test_other_numbers_have_six_decimals(dtype: str) -> None:
    assert texts(np.array([0.5, -0.25, 2], dtype), 2) == [b"2.000000:2", b"0.500000:0"]


def test_the_first_of_equal_values_comes_first_and_nan_last() -> None:
    values = np.array([np.nan, 1, 7, 1, 7, -np.inf, np.inf], np.float32)
    assert [text.partition(b":")[2] for text in texts(values, 9)] == [b"6", b"2", b"4", b"1", b"3", b"0", b"5"]
    assert texts(values, 2) == [b"inf:6", b"7.000000:2"]
    assert texts(np.zeros(1000, np.int8), 2) == [b"0:0", b"0:1"]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 45))
def test_they_are_those_of_a_stable_sort(values: list[int], count: int) -> None:
    best = sorted(range(len(values)), key=lambda index: -values[index])[:count]
    assert texts(np.array(values, np.int32), count) == [b"%d:%d" % (values[index], index) for index in best]


def test_many_equal_values_take_no_more_memory_than_others() -> None:
    array = np.zeros(1 << 23, np.uint8)
    array[-1] = 1
    tracemalloc.start()
    found = replace(classes(3), at_once=1 << 30).apply({"A": array})["A"].tolist()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [b"1:8388607", b"0:0", b"0:1"]
    assert peak < 4 * array.nbytes


def test_labels_are_added_where_there_are_any() -> None:
    assert texts(np.array([1, 4, 3, 2]), 4, b"cat", b"", "Hündin".encode()) == [
        b"4:1",
        "3:2:Hündin".encode(),
        b"2:3",
        b"1:0:cat",
    ]


def test_each_element_of_a_batch_has_its_own_classes() -> None:
    array = np.array([[[1, 2], [3, 0]], [[5, 4], [5, 6]]], np.int32)
    assert texts(array, 2, batches=True) == [[b"3:2", b"2:1"], [b"6:3", b"5:0"]]
    assert texts(array, 2) == [b"6:7", b"5:4"]


@pytest.mark.parametrize(
    ("shape", "batches", "expected"),
    [((0, 4), True, (0, 0)), ((2, 0), True, (2, 0)), ((0,), False, (0,)), ((), False, (1,)), ((3, 2), True, (3, 2))],
)
def test_there_are_no_more_classes_than_elements(
    shape: tuple[int, ...], batches: bool, expected: tuple[int, ...]
) -> None:
    assert classes(2**64 - 1, batches=batches).apply({"A": np.zeros(shape, np.float32)})["A"].shape == expected


def test_the_other_outputs_and_the_parameters_stay() -> None:
    other = np.zeros(3)
    found = classes(1).apply(Outputs({"A": np.ones(2), "B": other}, {"p": 1}))
    assert found["B"] is other
    assert found.parameters == {"p": 1}
    assert classes(1).apply({"B": other}) == {"B": other}


@pytest.mark.parametrize(("array", "wire"), [(np.array([b"a"], object), "BYTES"), (np.array([True]), "BOOL")])
def test_only_numbers_have_classes(array: np.ndarray, wire: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"class result not available .* unsupported type '{wire}'"):
        texts(array, 1)


def test_much_work_is_left_to_a_thread() -> None:
    array = np.arange(2 * AT_ONCE)
    with pytest.raises(LargeClassesError, match="decoupled model") as raised:
        texts(array, 2 * AT_ONCE)
    found = raised.value.classify()["A"]
    # Written down in the thread, not by whoever sends the answer.
    assert is_packed(found)
    assert unpacked(found).tolist()[-1] == b"0:0"


def test_the_number_of_texts_is_bounded() -> None:
    array = np.broadcast_to(np.int8(1), (MAX_TEXTS + 1,))
    with pytest.raises(InvalidArgumentError, match=f"asks for {MAX_TEXTS + 1} classes"):
        texts(array, MAX_TEXTS + 1)

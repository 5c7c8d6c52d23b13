"""BYTES as OpenVINO's strings, in all shapes and lengths."""

from __future__ import annotations

import tracemalloc
from importlib.util import find_spec

import numpy as np
import pytest

if find_spec("openvino") is None:
    pytest.skip("the extra openvino is not installed", allow_module_level=True)

from naiad.backends.openvino.strings import string_array, string_tensor
from support import openvino_models  # noqa: F401


def texts(shape: tuple[int, ...]) -> np.ndarray:
    """Elements that all differ, most in their length as well."""
    made = np.empty(shape, np.object_)
    for number, place in enumerate(np.ndindex(*shape)):
        made[place] = b"\xff" * (number % 7) + b"%d" % number
    return made


@pytest.mark.parametrize(
    "shape", [(), (1,), (3,), (16,), (17,), (100,), (40, 1), (1, 40), (5, 7), (3, 17), (2, 3, 5), (2, 20, 3), (4, 1, 9)]
)
def test_elements_keep_their_places(shape: tuple[int, ...]) -> None:
    given = texts(shape)
    found = string_array(string_tensor(given))
    assert found.shape == shape and found.tolist() == given.tolist()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_tensors_of_no_size(shape: tuple[int, ...]) -> None:
    found = string_array(string_tensor(np.empty(shape, np.object_)))
    assert found.shape == shape and found.dtype == np.object_


@pytest.mark.parametrize(
    "values", [[b""], [b"", b""], [b"a", b""], [b"\xff", b""], [b"", b"", b"long"], [b"a\0b", b"\0a"]]
)
def test_empty_and_odd_elements(values: list[bytes]) -> None:
    given = np.array([*values, None], np.object_)[:-1]
    for _ in range(20):
        assert string_array(string_tensor(given)).tolist() == values


def test_a_long_element_does_not_cost_its_length_for_each_other() -> None:
    given = np.empty(2_000, np.object_)
    given[:] = b"x"
    given[500] = b"y" * 1_000_000
    tracemalloc.start()
    try:
        assert string_array(string_tensor(given)).tolist() == given.tolist()
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()

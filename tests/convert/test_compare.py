"""By how much outputs differ, and what counts as too much."""

from __future__ import annotations

import numpy as np
import pytest

from naiad.convert.compare import Difference
from naiad.convert.errors import StepError
from naiad.convert.formats import TOLERANCES, Precision

FP32 = TOLERANCES[Precision.FP32]


def compared(wanted: list[list[float]], found: list[list[float]]) -> Difference:
    difference = Difference()
    difference.add(0, {"y": np.array(wanted)}, {"y": np.array(found)}, FP32)
    return difference


def test_equal_outputs_differ_by_nothing() -> None:
    same = compared([[1.0, 2.0]], [[1.0, 2.0]])
    assert (same.max_abs, same.max_rel, same.top1, same.is_within) == (0, 0, 1, True)
    assert same.cosine == pytest.approx(1)


def test_errors_are_relative_to_the_greatest_magnitude() -> None:
    found = compared([[100.0, 0.001]], [[100.0, 0.002]])
    assert found.max_abs == pytest.approx(0.001)
    assert found.max_rel == pytest.approx(1e-5)
    assert found.is_within


def test_an_error_above_both_tolerances_is_too_much() -> None:
    assert not compared([[1.0, 2.0]], [[1.0, 2.01]]).is_within


def test_rows_whose_greatest_element_moved_are_counted() -> None:
    found = compared([[1.0, 2.0], [3.0, 0.0]], [[2.0, 1.0], [3.0, 0.0]])
    assert (found.agreeing, found.rows, found.top1) == (1, 2, 0.5)


def test_axes_of_one_element_are_no_difference() -> None:
    difference = Difference()
    difference.add(0, {"y": np.ones(3)}, {"y": np.ones((3, 1))}, FP32)
    assert difference.is_within


def test_the_worst_sample_is_kept() -> None:
    difference = Difference()
    for index, error in enumerate((0.0, 0.5, 0.1)):
        difference.add(index, {"y": np.ones((1, 2))}, {"y": np.ones((1, 2)) + error}, FP32)
    assert difference.worst == 1


def test_other_shapes_and_nan_are_refused() -> None:
    with pytest.raises(StepError, match=r"output 'y' for sample 0 has the shape \[2, 1\]"):
        Difference().add(0, {"y": np.ones((1, 2))}, {"y": np.ones((2, 1))}, FP32)
    with pytest.raises(StepError, match="1 elements that are NaN or infinity"):
        compared([[1.0]], [[float("nan")]])

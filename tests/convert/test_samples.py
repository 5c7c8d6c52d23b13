"""Samples of files and functions, and what is wrong with those that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.convert.errors import StepError
from naiad.convert.outputs import as_arrays, check_finite
from naiad.convert.samples import collect, load_samples, read_samples, write_samples


def gathered(*elements: Any) -> list[dict[str, np.ndarray[Any, Any]]]:
    return collect(elements, 100, (), "loader")


def test_rows_of_a_file_are_samples_of_a_batch(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", x=np.arange(10).reshape(5, 2), y=np.arange(5))
    samples = read_samples(str(tmp_path / "samples.npz"), 100, 2)
    assert [sample["x"].shape for sample in samples] == [(2, 2), (2, 2), (1, 2)]
    assert [sample["y"].tolist() for sample in samples] == [[0, 1], [2, 3], [4]]


def test_files_of_a_folder_are_a_sample_each(tmp_path: Path) -> None:
    for length in (3, 5):
        np.savez(tmp_path / f"{length}.npz", x=np.zeros((1, length)))
    assert [one["x"].shape for one in read_samples(str(tmp_path), 100, 4)] == [(1, 3), (1, 5)]


def test_a_function_gives_arrays_tuples_or_dictionaries(tmp_path: Path) -> None:
    (tmp_path / "loader.py").write_text("import numpy as np\ndef data():\n    yield (np.ones(2), np.zeros(3))\n")
    assert list(read_samples(f"{tmp_path}/loader.py:data", 100, 4)[0]) == ["input__0", "input__1"]
    assert list(gathered(np.ones(2))[0]) == ["input__0"]
    assert list(gathered({"x": np.ones(2)})[0]) == ["x"]


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    samples = gathered({"b": np.ones(2), "a": np.array(["x", "y"])}, {"b": np.zeros(3), "a": np.array(["z", "zz"])})
    write_samples(samples, tmp_path)
    again = load_samples(tmp_path)
    assert [list(one) for one in again] == [["b", "a"], ["b", "a"]]
    assert again[1]["a"].tolist() == ["z", "zz"]


@pytest.mark.parametrize(
    ("elements", "text"),
    [
        ((), "has no samples"),
        (({"x": np.ones(2)}, {"y": np.ones(2)}), "sample 1 has the inputs y, and sample 0 has x"),
        (({"x": np.ones(2)}, {"x": np.ones((2, 2))}), r"input 'x' has 2 dimensions \[2, 2\], and 1 \[2\] in sample 0"),
        (({"x": np.ones(2)}, {"x": np.ones(2, np.int64)}), "input 'x' is int64, and float64 in sample 0"),
        (({"x": np.array([1, np.nan])},), "input 'x' has NaN or infinity"),
        (({"x": {1, 2}},), "is of the type set, not numbers"),
    ],
)
def test_samples_that_do_not_fit_are_named(elements: tuple[Any, ...], text: str) -> None:
    with pytest.raises(StepError, match=text):
        gathered(*elements)


def test_missing_places_say_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="there is no"):
        read_samples(str(tmp_path / "none.npz"), 1, 1)
    with pytest.raises(StepError, match=r"no \.npz or \.npy files"):
        read_samples(str(tmp_path), 1, 1)


def test_outputs_that_are_no_tensors_are_refused() -> None:
    with pytest.raises(StepError, match="returns a str at 'label'"):
        as_arrays({"scores": np.ones(2), "label": "cat"})
    with pytest.raises(StepError, match="returns no tensor"):
        as_arrays(None)
    assert list(as_arrays((np.ones(1), [np.ones(2), np.ones(3)]))) == ["output__0", "output__1_0", "output__1_1"]


def test_nan_outputs_are_refused() -> None:
    with pytest.raises(StepError, match=r"sample 3: output 'y' has 1 of 2 elements that are NaN"):
        check_finite({"y": np.array([1.0, np.nan])}, "sample 3")

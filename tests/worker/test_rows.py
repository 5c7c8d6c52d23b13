"""The inputs of requests that lie one behind the other in one frame: made when a model asks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.worker_peer import Request, worker_of, write_execute

ANSWER = """
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(found(r), np.float64))]) for r in requests]
"""


def asked(folder: Path, body: str, count: int, steps: bool = False) -> list[list[float]]:
    """What ``found(r)`` of ``body`` gives for each of ``count`` requests with INT8 A [3] and FP32 B [2, 2]."""
    inputs = [
        {"A": np.full(3, n, np.int8), "B": np.arange(4, dtype=np.float32).reshape(2, 2) * n} for n in range(count)
    ]
    with worker_of(write_execute(folder, body + ANSWER)) as child:
        said = [(n + 1, 0) for n in range(count)] if steps else []
        return [o["OUT"].ravel().tolist() for o in child.run_uniform([Request(i) for i in inputs], steps=said)]


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("steps", [False, True])
def test_each_request_has_its_own(tmp_path: Path, count: int, steps: bool) -> None:
    body = """
    def found(r):
        b = pb_utils.get_input_tensor_by_name(r, "B")
        a, again = r.inputs()
        assert again is b and pb_utils.get_input_tensor_by_name(r, "A") is a and r.inputs()[1] is b
        assert [a.name(), b.name(), a.shape(), b.shape()] == ["A", "B", [3], [2, 2]]
        assert pb_utils.get_input_tensor_by_name(r, "C") is None
        arrays = a.as_numpy(), b.as_numpy()
        assert [x.dtype.name for x in arrays] == ["int8", "float32"] and a.as_numpy() is arrays[0]
        assert all(x.flags.c_contiguous and x.flags.writeable and x.flags.aligned for x in arrays)
        return [*arrays[0], *arrays[1].ravel()]
    """
    expected = [[n, n, n, 0, n, 2 * n, 3 * n] for n in range(count)]
    assert asked(tmp_path, body, count, steps) == expected


def test_who_writes_to_one_changes_no_other(tmp_path: Path) -> None:
    body = """
    for r in requests[::2]:
        for name in ("A", "B"):
            pb_utils.get_input_tensor_by_name(r, name).as_numpy()[...] = -1

    def found(r):
        return np.concatenate([t.as_numpy().ravel() for t in r.inputs()])
    """
    found = asked(tmp_path, body, 4)
    assert found == [[-1] * 7, [1, 1, 1, 0, 1, 2, 3], [-1] * 7, [3, 3, 3, 0, 3, 6, 9]]


@pytest.mark.parametrize("count", [1, 3])
def test_they_are_shared_by_dlpack(tmp_path: Path, count: int) -> None:
    body = """
    def found(r):
        return pb_utils.Tensor.from_dlpack("B", pb_utils.get_input_tensor_by_name(r, "B")).as_numpy()
    """
    assert asked(tmp_path, body, count) == [[0, n, 2 * n, 3 * n] for n in range(count)]


def test_what_a_model_keeps_stays_as_it_was(tmp_path: Path) -> None:
    body = """
    if not hasattr(self, "kept"):
        self.kept = pb_utils.get_input_tensor_by_name(requests[1], "A").as_numpy()

    def found(r):
        return self.kept
    """
    with worker_of(write_execute(tmp_path, body + ANSWER)) as child:
        for n in range(3):
            given = [Request({"A": np.full(3, 10 * n + row, np.int8)}) for row in range(2)]
            assert [o["OUT"].tolist() for o in child.run_uniform(given)] == [[1] * 3] * 2

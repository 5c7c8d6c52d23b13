"""Large outputs of ONNX Runtime are written where they are sent from, as long as the graph says how large they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from naiad.backends.onnx.bound_outputs import LARGE_BYTES, BoundOutputs
from naiad.backends.onnx.instance import OnnxInstance
from naiad.backends.onnx.output_shapes import OutputShapes
from naiad.errors import BackendError
from support import onnx_models

Array = np.ndarray[Any, Any]
VALUES = LARGE_BYTES // 4
FLOATS = {"Y": np.dtype(np.float32)}


class Memory:
    """Memory for outputs that remembers what it was asked for."""

    def __init__(self, is_full: bool = False) -> None:
        self.is_full = is_full
        self.taken: list[Array] = []

    def take(self, size: int) -> Array | None:
        if self.is_full:
            return None
        self.taken.append(np.full(size, 255, np.uint8))
        return self.taken[-1]


def session_of(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def instance_of(path: Path, memory: Memory) -> OnnxInstance:
    session = session_of(path)
    instance = OnnxInstance(session, None, BoundOutputs(session, FLOATS))
    instance.output_memory = memory.take
    return instance


def is_in(memory: Memory, array: Array) -> bool:
    return any(np.shares_memory(array, block) for block in memory.taken)


def row(values: int = VALUES, rows: int = 1) -> Array:
    return np.arange(rows * values, dtype=np.float32).reshape(rows, values)


def save(
    path: Path, nodes: list[Any], outer: tuple[str | int, ...], inputs: tuple[str | int, ...] = ("N", "V")
) -> Path:
    return onnx_models.save(path, nodes, {"X": ("FP32", inputs)}, {"Y": ("FP32", outer)})


def test_a_large_output_lies_in_the_memory(tmp_path: Path) -> None:
    memory = Memory()
    instance = instance_of(onnx_models.double(tmp_path / "m.onnx", ("N", "V"), ("N", "V")), memory)
    x = row(rows=3)
    found = instance.execute({"X": x}, ["Y"])["Y"]
    assert np.array_equal(found, 2 * x)
    assert found.dtype == np.float32
    assert is_in(memory, found)
    instance.close()


@pytest.mark.parametrize("case", ["small", "full", "none"])
def test_other_outputs_own_their_memory(tmp_path: Path, case: str) -> None:
    memory = Memory(is_full=case == "full")
    instance = instance_of(onnx_models.double(tmp_path / "m.onnx", ("N", "V"), ("N", "V")), memory)
    x = row({"small": 16, "full": VALUES, "none": 0}[case])
    found = instance.execute({"X": x}, ["Y"])["Y"]
    assert np.array_equal(found, 2 * x)
    assert found.shape == x.shape
    assert not is_in(memory, found)


def test_inputs_in_any_order_of_memory(tmp_path: Path) -> None:
    instance = instance_of(onnx_models.double(tmp_path / "m.onnx", ("N", "V"), ("N", "V")), Memory())
    x = row(rows=4)[:, ::2]
    assert np.array_equal(instance.execute({"X": x}, ["Y"])["Y"], 2 * x)


def test_a_graph_that_promises_other_shapes(tmp_path: Path) -> None:
    """Nothing is written beyond the memory, and no run tries it again."""
    memory = Memory()
    nodes = [helper.make_node("Concat", ["X", "X"], ["Y"], axis=1)]
    instance = instance_of(save(tmp_path / "m.onnx", nodes, ("N", "V")), memory)
    x = row()
    for _ in range(2):
        assert np.array_equal(instance.execute({"X": x}, ["Y"])["Y"], np.concatenate([x, x], axis=1))
    (only,) = memory.taken
    assert set(only.tobytes()) == {255}


def test_a_run_that_fails_says_why_and_the_next_is_bound(tmp_path: Path) -> None:
    memory = Memory()
    nodes = [helper.make_node("MatMul", ["X", "X"], ["Y"])]
    instance = instance_of(save(tmp_path / "m.onnx", nodes, ("N", "V")), memory)
    with pytest.raises(BackendError, match="MatMul"):
        instance.execute({"X": row()}, ["Y"])
    x = np.eye(512, dtype=np.float32)
    found = instance.execute({"X": x}, ["Y"])["Y"]
    assert np.array_equal(found, x)
    assert is_in(memory, found)


def test_an_input_that_is_the_output(tmp_path: Path) -> None:
    memory = Memory()
    path = onnx_models.save(tmp_path / "m.onnx", [], {"X": ("FP32", ("N", "V"))}, {"X": ("FP32", ("N", "V"))})
    session = session_of(path)
    instance = OnnxInstance(session, None, BoundOutputs(session, {"X": np.dtype(np.float32)}))
    instance.output_memory = memory.take
    x = row()
    assert np.array_equal(instance.execute({"X": x}, ["X"])["X"], x)


@pytest.mark.parametrize(
    ("op", "outer", "expected"),
    [
        ("Identity", ("N", "V"), [(5, 7)]),
        ("Identity", ("N", 7), [(5, 7)]),
        ("Identity", (5, 7), [(5, 7)]),
        ("NonZero", (2, "count"), None),
        ("Relu", ("rows", "V"), None),
    ],
)
def test_shapes_are_known_from_the_names_of_axes(
    tmp_path: Path, op: str, outer: tuple[str | int, ...], expected: list[tuple[int, ...]] | None
) -> None:
    wire = "INT64" if op == "NonZero" else "FP32"
    nodes = [helper.make_node(op, ["X"], ["Y"])]
    path = onnx_models.save(tmp_path / "m.onnx", nodes, {"X": ("FP32", ("N", "V"))}, {"Y": (wire, outer)})
    shapes = OutputShapes(session_of(path))
    assert shapes.of({"X": row(7, 5)}, ["Y"]) == expected


def test_shapes_are_not_known_without_the_input_that_has_the_name(tmp_path: Path) -> None:
    shapes = OutputShapes(session_of(onnx_models.double(tmp_path / "m.onnx")))
    assert shapes.of({}, ["Y"]) is None
    assert shapes.of({"X": row(3)}, ["Y", "Z"]) is None

"""Which ONNX files take a time that depends on shapes alone."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from naiad.backends.onnx import operators
from naiad.backends.onnx.operators import BY_SHAPE, BY_SHAPE_ML, runs_by_shape
from support.served_models import LOOK_UP, SUM_AND_DIFFERENCE


def saved(folder: Path, *nodes: onnx.NodeProto) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y"))
    onnx.save(helper.make_model(helper.make_graph(list(nodes), "g", [x], [y])), folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("text", [SUM_AND_DIFFERENCE, LOOK_UP])
def test_plain_networks_run_by_shape(text: str, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    assert runs_by_shape(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "name", ["Loop", "Scan", "Range", "Expand", "Tile", "Pad", "Resize", "ConstantOfShape", "OneHot"]
)
def test_what_depends_on_values_does_not(name: str, tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["h"])
    assert runs_by_shape(saved(tmp_path, relu))
    assert not runs_by_shape(saved(tmp_path, relu, helper.make_node(name, ["h"], ["y"])))


def test_what_runs_another_graph_does_not(tmp_path: Path) -> None:
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "inner", [], [])
    branches = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    assert not runs_by_shape(saved(tmp_path, branches))


def test_a_forest_of_many_nodes_is_read_at_once(tmp_path: Path) -> None:
    """Each of its numbers is a field of its own."""
    numbers = list(range(200_000))
    forest = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", nodes_nodeids=numbers)
    read = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal read
        read += 1

    file = saved(tmp_path, forest)
    sys.setprofile(count)
    try:
        assert runs_by_shape(file)
    finally:
        sys.setprofile(None)
    assert read < 1000


@pytest.mark.parametrize("domain", ["com.microsoft", "mine"])
def test_operators_of_other_domains_are_unknown(domain: str, tmp_path: Path) -> None:
    assert not runs_by_shape(saved(tmp_path, helper.make_node("Relu", ["x"], ["y"], domain=domain)))


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"ORTM" + bytes(50)])
def test_what_is_no_network_does_not(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    assert not runs_by_shape(tmp_path / "model.onnx")


def test_a_graph_of_many_operators_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(tmp_path, *[helper.make_node("Relu", ["x"], ["y"])] * 3)
    assert runs_by_shape(file)
    monkeypatch.setattr(operators, "MOST_NODES", 2)
    assert not runs_by_shape(file)
    assert not runs_by_shape(tmp_path / "missing.onnx")


def test_a_file_that_is_cut_off_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    """Whatever lies there, reading ends, and no operator is taken for a known one."""
    file = saved(tmp_path, helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Loop", ["h"], ["y"]))
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        assert not runs_by_shape(file)


def test_weights_are_not_copied(tmp_path: Path) -> None:
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1 << 23], bytes(1 << 25), raw=True)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    tracemalloc.start()
    assert runs_by_shape(tmp_path / "model.onnx")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


def test_all_names_are_operators() -> None:
    known = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    assert {("", name) for name in BY_SHAPE} - known <= {("", "RMSNormalization"), ("", "TreeEnsemble")}
    assert {("ai.onnx.ml", name) for name in BY_SHAPE_ML} <= known

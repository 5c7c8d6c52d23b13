"""Which ONNX files take a time that depends on shapes alone."""

from __future__ import annotations

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


def test_subgraphs_are_looked_into(tmp_path: Path) -> None:
    inner = helper.make_graph([helper.make_node("Tile", ["x", "r"], ["y"])], "inner", [], [])
    branch = helper.make_node("Relu", ["x"], ["y"], body=inner)
    assert not runs_by_shape(saved(tmp_path, branch))
    branches = helper.make_node("Relu", ["x"], ["y"], bodies=[inner])
    assert not runs_by_shape(saved(tmp_path, branches))


@pytest.mark.parametrize("domain", ["com.microsoft", "mine"])
def test_operators_of_other_domains_are_unknown(domain: str, tmp_path: Path) -> None:
    assert not runs_by_shape(saved(tmp_path, helper.make_node("Relu", ["x"], ["y"], domain=domain)))


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"ORTM" + bytes(50)])
def test_what_is_no_network_does_not(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    assert not runs_by_shape(tmp_path / "model.onnx")


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(tmp_path, helper.make_node("Relu", ["x"], ["y"]))
    monkeypatch.setattr(operators, "MOST_BYTES", file.stat().st_size - 1)
    assert not runs_by_shape(file)
    assert not runs_by_shape(tmp_path / "missing.onnx")


def test_all_names_are_operators() -> None:
    known = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    assert {("", name) for name in BY_SHAPE} - known <= {("", "RMSNormalization"), ("", "TreeEnsemble")}
    assert {("ai.onnx.ml", name) for name in BY_SHAPE_ML} <= known

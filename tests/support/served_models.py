"""Small models for tests of the whole server, written into a model repository."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx.parser

from naiad import testing

SUM_AND_DIFFERENCE = """<ir_version: 8, opset_import: ["": 17]>
simple (int32[N, 16] INPUT0, int32[N, 16] INPUT1) => (int32[N, 16] OUTPUT0, int32[N, 16] OUTPUT1) {
  OUTPUT0 = Add (INPUT0, INPUT1)
  OUTPUT1 = Sub (INPUT0, INPUT1)
}"""

LOOK_UP = """<ir_version: 8, opset_import: ["": 17]>
look_up (int64[N, 1] index) => (float[N, 1] value) {
  table = Constant <value_floats = [10.0, 11.0, 12.0, 13.0]> ()
  value = Gather (table, index)
}"""
"""Looks up a row of a table of four: any other index makes the run fail."""


def tensor(name: str, data_type: str, dims: str, extra: str = "") -> str:
    """One tensor of a configuration."""
    return f'{{ name: "{name}" data_type: {data_type} dims: [ {dims} ] {extra} }}'


def write_model(repository: Path, name: str, config: str, versions: Sequence[int] = (1,), graph: str = "") -> Path:
    """Write one model and return its folder; each version holds the ONNX network ``graph``, if there is one."""
    files = {"model.onnx": onnx.parser.parse_model(graph).SerializeToString()} if graph else {}
    return testing.write_model(repository, name, config, versions, files)


def identity(
    data_type: str = "TYPE_INT32", dims: str = "-1", max_batch_size: int = 0, delay_ms: float = 0, extra: str = ""
) -> str:
    """The configuration of a model that gives INPUT0 back as OUTPUT0, after ``delay_ms``."""
    return f"""
        backend: "identity" max_batch_size: {max_batch_size}
        input [ {tensor("INPUT0", data_type, dims)} ] output [ {tensor("OUTPUT0", data_type, dims)} ]
        instance_group [ {{ kind: KIND_CPU count: 1 }} ]
        parameters {{ key: "execute_delay_ms" value {{ string_value: "{delay_ms}" }} }} {extra}"""


def numbers(values: Sequence[int], shape: Sequence[int] | None = None, **request: object) -> dict[str, object]:
    """An inference request with one INT32 input, INPUT0."""
    given = {"name": "INPUT0", "datatype": "INT32", "shape": list(shape or [len(values)]), "data": list(values)}
    return {**request, "inputs": [given]}

"""``simple``, ``simple_int8`` and ``simple_string``: the sum and the difference of two vectors of 16 elements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from naiad.quickstart.example_model import ONNX, ExampleModel, tensor_request, tensors
from naiad.quickstart.onnx_file import write_graph

_ELEMENTS: Final = 16
_SHAPE: Final = ("N", _ELEMENTS)
_OPERATORS: Final = {"OUTPUT0": "Add", "OUTPUT1": "Sub"}


def _config(name: str, datatype: str) -> str:
    dims = [_ELEMENTS]
    head = f'name: "{name}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\n'
    made = tensors("output", datatype, dims, "OUTPUT0", "OUTPUT1")
    return head + tensors("input", datatype, dims, "INPUT0", "INPUT1") + made


def _write_int32(folder: Path) -> None:
    from onnx import helper

    nodes = [helper.make_node(operator, ["INPUT0", "INPUT1"], [name]) for name, operator in _OPERATORS.items()]
    _write(folder, "INT32", nodes)


def _write_cast(folder: Path, datatype: str) -> None:
    """The same through INT32: ONNX Runtime adds neither INT8 nor strings."""
    from onnx import TensorProto, helper

    outer = getattr(TensorProto, datatype)
    nodes = [
        helper.make_node("Cast", [name], [f"{name}_number"], to=TensorProto.INT32) for name in ("INPUT0", "INPUT1")
    ]
    for name, operator in _OPERATORS.items():
        nodes.append(helper.make_node(operator, ["INPUT0_number", "INPUT1_number"], [f"{name}_number"]))
        nodes.append(helper.make_node("Cast", [f"{name}_number"], [name], to=outer))
    _write(folder, datatype, nodes)


def _write(folder: Path, datatype: str, nodes: Sequence[Any]) -> None:
    tensor = (datatype, _SHAPE)
    write_graph(folder, nodes, {"INPUT0": tensor, "INPUT1": tensor}, dict.fromkeys(_OPERATORS, tensor))


def _request(datatype: str, first: list[Any], second: list[Any]) -> dict[str, Any]:
    shape = [1, _ELEMENTS]
    return tensor_request(INPUT0=(datatype, shape, first), INPUT1=(datatype, shape, second))


_COUNT: Final = list(range(_ELEMENTS))
_ONES: Final = [1] * _ELEMENTS

SIMPLE: Final = ExampleModel(
    "simple",
    "adds and subtracts two INT32 vectors",
    _config("simple", "INT32"),
    _write_int32,
    ONNX,
    request=_request("INT32", _COUNT, _ONES),
)
SIMPLE_INT8: Final = ExampleModel(
    "simple_int8",
    "the same for INT8",
    _config("simple_int8", "INT8"),
    lambda folder: _write_cast(folder, "INT8"),
    ONNX,
    request=_request("INT8", _COUNT, _ONES),
)
SIMPLE_STRING: Final = ExampleModel(
    "simple_string",
    "the same for numbers that are written as strings",
    _config("simple_string", "STRING"),
    lambda folder: _write_cast(folder, "STRING"),
    ONNX,
    request=_request("BYTES", [str(number) for number in _COUNT], [str(number) for number in _ONES]),
)

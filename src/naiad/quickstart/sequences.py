"""``simple_sequence``, ``simple_dyna_sequence`` and ``simple_string_dyna_sequence``: models that get control tensors.

The first two keep no state: they show what the server says about a sequence. The third adds up its sequence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from naiad.quickstart.example_model import ONNX, ExampleModel, tensor_request, tensors
from naiad.quickstart.onnx_file import write_graph

_ROW: Final = ("INT32", ("N", 1))
_ID: Final = ("UINT64", ("N", 1))
_TENSORS: Final = tensors("input", "INT32", [1], "INPUT") + tensors("output", "INT32", [1], "OUTPUT")
_IDLE_US: Final = 10_000_000


def _control(name: str, kind: str, content: str) -> str:
    return (
        f'    {{\n      name: "{name}"\n      control [\n        {{\n          kind: CONTROL_SEQUENCE_{kind}\n'
        f"          {content}\n        }}\n      ]\n    }}"
    )


def _flags(*names: str) -> list[str]:
    return [_control(name, name, "int32_false_true: [ 0, 1 ]") for name in names]


def _controls(controls: list[str]) -> str:
    listed = ",\n".join(controls)
    return f"  control_input [\n{listed}\n  ]\n"


def _oldest(id_datatype: str) -> str:
    corrid = _control("CORRID", "CORRID", f"data_type: TYPE_{id_datatype}")
    return (
        f"sequence_batching {{\n  max_sequence_idle_microseconds: {_IDLE_US}\n"
        "  oldest {\n    max_candidate_sequences: 1024\n    max_queue_delay_microseconds: 10000\n  }\n"
        f"{_controls([*_flags('START', 'END', 'READY'), corrid])}}}\n"
    )


def _write_start(folder: Path) -> None:
    """OUTPUT is INPUT, plus 1 for the first request of a sequence."""
    from onnx import helper

    nodes = [
        helper.make_node("Add", ["INPUT", "START"], ["STARTED"]),
        helper.make_node("Mul", ["STARTED", "READY"], ["OUTPUT"]),
    ]
    write_graph(folder, nodes, {"INPUT": _ROW, "START": _ROW, "READY": _ROW}, {"OUTPUT": _ROW})


def _write_start_and_end(folder: Path) -> None:
    """OUTPUT is INPUT, plus 1 for the first request of a sequence, plus the correlation id for the last one."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["CORRID"], ["ID"], to=TensorProto.INT32),
        helper.make_node("Mul", ["END", "ID"], ["ENDED"]),
        helper.make_node("Add", ["INPUT", "START"], ["STARTED"]),
        helper.make_node("Add", ["STARTED", "ENDED"], ["SUM"]),
        helper.make_node("Mul", ["SUM", "READY"], ["OUTPUT"]),
    ]
    inputs = {"INPUT": _ROW, "START": _ROW, "END": _ROW, "READY": _ROW, "CORRID": _ID}
    write_graph(folder, nodes, inputs, {"OUTPUT": _ROW})


def _request(sequence_id: int | str) -> dict[str, Any]:
    """A whole sequence of one request."""
    parameters = {"sequence_id": sequence_id, "sequence_start": True, "sequence_end": True}
    return {"parameters": parameters, **tensor_request(INPUT=("INT32", [1, 1], [5]))}


SIMPLE_SEQUENCE: Final = ExampleModel(
    "simple_sequence",
    "adds 1 to the first value of a sequence",
    'name: "simple_sequence"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\n'
    f"sequence_batching {{\n{_controls(_flags('START', 'READY'))}}}\n{_TENSORS}"
    "instance_group [\n  {\n    kind: KIND_CPU\n  }\n]\n",
    _write_start,
    ONNX,
    request=_request(1),
)
SIMPLE_DYNA_SEQUENCE: Final = ExampleModel(
    "simple_dyna_sequence",
    "the same, oldest requests first; adds the sequence's id to its last value",
    'name: "simple_dyna_sequence"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 8\n'
    f"{_oldest('UINT64')}{_TENSORS}"
    "instance_group [\n  {\n    count: 2\n    kind: KIND_CPU\n  }\n]\n",
    _write_start_and_end,
    ONNX,
    request=_request(1),
)
SIMPLE_STRING_DYNA_SEQUENCE: Final = ExampleModel(
    "simple_string_dyna_sequence",
    "adds up a sequence whose id is a string, such as \"1002\"; runs in the server's backend 'dyna_sequence'",
    'name: "simple_string_dyna_sequence"\nbackend: "dyna_sequence"\nmax_batch_size: 8\n'
    f"{_oldest('STRING')}{_TENSORS}"
    "instance_group [\n  {\n    kind: KIND_CPU\n  }\n]\n",
    request=_request("1002"),
)

"""ONNX files of a few nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

FILE: Final = "model.onnx"
OPSET: Final = 17
IR_VERSION: Final = 8
"""Old enough for every ONNX Runtime that Naiad runs on."""


def write_graph(
    folder: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[int | str]]],
    outputs: Mapping[str, tuple[str, Sequence[int | str]]],
    initializers: Sequence[Any] = (),
) -> None:
    """Write ``model.onnx``.

    Args:
        folder: the version's folder.
        nodes: of ``onnx.helper.make_node``, in an order in which they can run.
        inputs, outputs: ONNX's name of the datatype, such as ``INT32``, and the shape of each; a word is a free
            dimension.
        initializers: the constants, as ``onnx.TensorProto``.
    """
    from onnx import TensorProto, helper

    def infos(tensors: Mapping[str, tuple[str, Sequence[int | str]]]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, getattr(TensorProto, datatype), list(shape))
            for name, (datatype, shape) in tensors.items()
        ]

    graph = helper.make_graph(list(nodes), "graph", infos(inputs), infos(outputs), list(initializers))
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="naiad quickstart",
    )
    (folder / FILE).write_bytes(model.SerializeToString())

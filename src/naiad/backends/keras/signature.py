"""The tensors of a Keras model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from naiad.backends.shared.completion import GraphSignature
from naiad.backends.shared.signature import ModelTensor
from naiad.tensor.dtypes import BY_WIRE

if TYPE_CHECKING:
    from collections.abc import Sequence

_DTYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}


@dataclass(frozen=True, slots=True)
class CallShape:
    """How a model is called.

    Attributes:
        tensors: its inputs and outputs.
        inputs: names of inputs in the order in which Keras flattens them.
        structure: what the model takes, with a number in the place of each input: 0, ``[0, 1]``, ``{"X": 0}``.
        outputs: names of outputs in the order in which Keras flattens them.
    """

    tensors: GraphSignature
    inputs: tuple[str, ...]
    structure: Any
    outputs: tuple[str, ...]


def call_shape(keras: Any, model: Any) -> CallShape:
    """How ``model`` is called, and its tensors: inputs under their own names, outputs under those of their layers.

    Outputs in a dictionary have its keys as names.
    """
    inputs = _distinct([tensor.name for tensor in model.inputs])
    # A Sequential model has no such attribute, and one input.
    structure = _numbered(keras, getattr(model, "input", model.inputs[0]), len(inputs))
    outputs = _output_names(keras, model)
    return CallShape(
        GraphSignature(
            tuple(map(_tensor, inputs, model.inputs)),
            tuple(map(_tensor, outputs, model.outputs)),
        ),
        inputs,
        structure,
        outputs,
    )


def _output_names(keras: Any, model: Any) -> tuple[str, ...]:
    numbered = _numbered(keras, getattr(model, "output", None), len(model.outputs))
    if isinstance(numbered, dict) and all(isinstance(place, int) for place in numbered.values()):
        return tuple(sorted(numbered, key=numbered.__getitem__))
    # A Sequential model has one output, that of its last layer.
    names = getattr(model, "output_names", None) or [model.layers[-1].name]
    return _distinct(list(names))


def _numbered(keras: Any, structure: Any, count: int) -> Any:
    return None if structure is None else keras.tree.pack_sequence_as(structure, list(range(count)))


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """A layer may have several outputs: the second is called ``name_1``."""
    made: list[str] = []
    for name in names:
        number, candidate = 0, name
        while candidate in made:
            number += 1
            candidate = f"{name}_{number}"
        made.append(candidate)
    return tuple(made)


def _tensor(name: str, tensor: Any) -> ModelTensor:
    wire = _DTYPES.get(str(tensor.dtype))
    shape = tuple(-1 if axis is None else int(axis) for axis in tensor.shape)
    return ModelTensor(name, BY_WIRE[wire] if wire else None, str(tensor.dtype), shape or None)

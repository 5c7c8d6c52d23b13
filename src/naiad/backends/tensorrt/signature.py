"""What the engine of a plan says of its tensors and profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.completion import GraphSignature
from naiad.backends.shared.signature import ModelTensor
from naiad.backends.tensorrt.profiles import Profile, ShapeRange
from naiad.errors import ModelLoadError
from naiad.tensor.dtypes import BY_WIRE

if TYPE_CHECKING:
    from naiad.config.spec import ModelSpec

_WIRES: Final = {
    "FLOAT": "FP32",
    "HALF": "FP16",
    "BF16": "BF16",
    "INT8": "INT8",
    "INT32": "INT32",
    "INT64": "INT64",
    "UINT8": "UINT8",
    "BOOL": "BOOL",
}
"""TensorRT's types that the protocol has, by their names."""
_NARROW, _WIDE = BY_WIRE["INT32"], BY_WIRE["INT64"]


@dataclass(frozen=True, slots=True)
class PlanSignature:
    """The tensors of a plan and its optimisation profiles.

    Attributes:
        graph: inputs and outputs.
        on_host: tensors whose values TensorRT reads or writes in the memory of the processor: those that are shapes.
        profiles: in the order of the plan.
    """

    graph: GraphSignature
    on_host: frozenset[str]
    profiles: tuple[Profile, ...]

    @property
    def most_rows(self) -> int:
        """The largest batch that the first profile takes, 0 where the plan does not batch."""
        return self.profiles[0].most_rows if self.graph.can_batch else 0


def read_signature(model: str, engine: Any) -> PlanSignature:
    """The signature of an engine.

    Raises:
        ModelLoadError: a tensor does not lie in memory as arrays do.
    """
    import tensorrt

    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT]
    for name in names:
        if engine.get_tensor_format(name) != tensorrt.TensorFormat.LINEAR:
            raise ModelLoadError(
                f"model '{model}': tensor '{name}' of the plan has the format {engine.get_tensor_format_desc(name)}, "
                f"and only linear ones are served; build the plan without formats of its own for inputs and outputs"
            )
    on_host = frozenset(n for n in names if engine.get_tensor_location(n) == tensorrt.TensorLocation.HOST)
    graph = GraphSignature(
        tuple(_tensor(engine, name) for name in inputs),
        tuple(_tensor(engine, name) for name in names if name not in inputs),
    )
    profiles = tuple(
        Profile(number, {name: _range(engine, name, number) for name in inputs if name not in on_host})
        for number in range(engine.num_optimization_profiles)
    )
    return PlanSignature(graph, on_host, profiles)


def narrowed(spec: ModelSpec, graph: GraphSignature) -> tuple[GraphSignature, frozenset[str]]:
    """The signature as the configuration may state it, and the tensors that are TYPE_INT64 there and INT32 in the plan.

    Plans that older TensorRT made of ONNX files are such: it had no type of 64 bits.
    """
    stated = {**spec.inputs, **spec.outputs}
    found = frozenset(
        tensor.name
        for tensor in (*graph.inputs, *graph.outputs)
        if tensor.dtype == _NARROW and tensor.name in stated and stated[tensor.name].dtype == _WIDE
    )
    return GraphSignature(_widened(graph.inputs, found), _widened(graph.outputs, found)), found


def _widened(tensors: Sequence[ModelTensor], names: frozenset[str]) -> tuple[ModelTensor, ...]:
    return tuple(replace(tensor, dtype=_WIDE) if tensor.name in names else tensor for tensor in tensors)


def _tensor(engine: Any, name: str) -> ModelTensor:
    kind = engine.get_tensor_dtype(name).name
    wire = _WIRES.get(kind)
    return ModelTensor(name, BY_WIRE[wire] if wire else None, kind, tuple(engine.get_tensor_shape(name)) or None)


def _range(engine: Any, name: str, profile: int) -> ShapeRange:
    smallest, best, largest = (tuple(shape) for shape in engine.get_tensor_profile_shape(name, profile))
    return ShapeRange(smallest, best, largest)

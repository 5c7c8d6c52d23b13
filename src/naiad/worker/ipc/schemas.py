"""Schemas: what requests and responses have in common with others like them, read or written once."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Tuple, Union

from .datatypes import BY_WIRE, WorkerDataType
from .errors import TritonModelException
from .frame_body import aligned, places_struct

CorrelationId = Union[int, str]
TensorSchema = Tuple[str, WorkerDataType, Tuple[int, ...]]
Parameters = Mapping[str, Any]


class Schema:
    """A schema that the server sent: of its requests, or of its responses to calls.

    Attributes:
        tensors: name, datatype and shape of every tensor, in the order of the places.
        places: the places of all tensors in one struct, four numbers each.
        in_regions: its requests may have tensors in regions; ``placed`` names the outputs that are wanted there, whose
            places come behind those of the inputs.
        outputs: names of the wanted outputs; ``wanted`` has them as a set, None when the schema names none.
        parameters_json: the parameters as compact JSON.
        layout: where each tensor begins among those of one request alike, its bytes, and the strides of its array; the
            tensors of the next request lie ``stride`` bytes further.
        indices: where each name is among the tensors.
    """

    __slots__ = (
        "correlation_id",
        "decoupled",
        "flags",
        "in_regions",
        "indices",
        "layout",
        "outputs",
        "parameters_json",
        "placed",
        "places",
        "stride",
        "tensors",
        "timeout_us",
        "trace",
        "wanted",
    )

    def __init__(self, content: Mapping[str, Any]) -> None:
        is_request = "inputs" in content
        self.tensors = tuple(_tensor_schema(t) for t in content["inputs" if is_request else "outputs"])
        self.in_regions = "placed" in content
        self.placed: tuple[str, ...] = tuple(content.get("placed", ()))
        self.places = places_struct(len(self.tensors) + len(self.placed))
        # Computed here once: uniform requests only multiply by the stride.
        self.layout, self.stride = _layout(self.tensors)
        self.indices = {name: index for index, (name, _, _) in enumerate(self.tensors)}
        self.outputs: tuple[str, ...] = tuple(content.get("outputs", ())) if is_request else ()
        self.wanted: frozenset[str] | None = frozenset(self.outputs) or None
        # As text, since models get the parameters as JSON: written once for all requests of the schema.
        self.parameters_json = compact_json(content.get("parameters") or {})
        self.timeout_us: int = content.get("timeout_us", 0)
        self.flags: int = content.get("flags", 0)
        self.correlation_id: CorrelationId = content.get("correlation_id", 0)
        # None where the request is not traced, "" where its trace has no context.
        self.trace: str | None = content.get("trace")
        self.decoupled = bool(content.get("decoupled", False))


Schemas = Dict[int, Schema]


def read_schema(payload: bytes | bytearray) -> Schema:
    """The schema that a ``SCHEMA`` frame holds."""
    return Schema(json.loads(payload))


def compact_json(parameters: Parameters) -> str:
    """Parameters as a model gets to see them: no spaces, text as it is."""
    return json.dumps(parameters, separators=(",", ":"), ensure_ascii=False)


def checked_parameters(parameters: Any) -> str:
    """The JSON of parameters that a model gives, as Python writes it.

    Raises:
        TritonModelException: they are no dict, a key is no text, or a value is neither bool, int nor str.
    """
    if parameters is None:
        return "{}"
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect dict, got {type(parameters)}")
    if not parameters:
        return "{}"
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        # No floats: the reference refuses them as well.
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return json.dumps(parameters)


def response_schema(tensors: tuple[TensorSchema, ...], parameters_json: str) -> dict[str, Any]:
    """The content of a response's schema."""
    return {"outputs": _listed(tensors), "parameters": json.loads(parameters_json)}


def call_schema(tensors: tuple[TensorSchema, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a call's schema; ``options`` has all but the inputs."""
    return {"inputs": _listed(tensors), **options}


def _listed(tensors: tuple[TensorSchema, ...]) -> list[Any]:
    return [[name, datatype.wire, list(shape)] for name, datatype, shape in tensors]


def _tensor_schema(entry: Any) -> TensorSchema:
    name, wire, shape = entry
    return name, BY_WIRE[wire], tuple(shape)


def _layout(tensors: tuple[TensorSchema, ...]) -> tuple[tuple[tuple[int, int, tuple[int, ...]], ...], int]:
    offset, found = 0, []
    for _, datatype, shape in tensors:
        size, strides = datatype.itemsize, []
        for dim in reversed(shape):
            strides.append(size)
            size *= dim
        found.append((offset, size, tuple(reversed(strides))))
        offset += aligned(size)
    return tuple(found), offset

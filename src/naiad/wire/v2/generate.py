"""The generate extension: flat JSON to a request, and outputs to flat JSON.

A member of the request with the name of an input is that input, any other member is a request parameter. The member
``parameters`` is an object whose members are read by the same rule. Shapes follow from the number of values.

Source: protocol section "Generate Extension", and recorded responses for the order of the members.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import orjson

from naiad.config.spec import TensorSpec
from naiad.errors import InvalidArgumentError, MalformedRequestError
from naiad.request import Array, ParameterValue
from naiad.tensor.dtypes import DataType
from naiad.wire.json_text import kind_of, load_json
from naiad.wire.v2.header import RESERVED_KEY, InferHeader, InputHeader, check_number, count_elements
from naiad.wire.v2.json import encode_data
from naiad.wire.v2.parameters import parameters_of, value_json
from naiad.wire.v2.response import datatype_of

NESTED: Final = "parameters"
_Members = Sequence[tuple[str, Any]]


def read_generate(raw: bytes | bytearray | memoryview, inputs: Mapping[str, TensorSpec]) -> InferHeader:
    """The request in the body ``raw`` for a model with these ``inputs``, with its data inside.

    Raises:
        MalformedRequestError: it is no JSON object, or a member is of the wrong type.
        InvalidArgumentError: values do not fit the shape of their input, or a parameter is not allowed.
    """
    root = load_json(raw)
    if not isinstance(root, dict):
        raise MalformedRequestError(f"the request must be a JSON object, found {kind_of(root)}")
    if NESTED in root and NESTED in inputs:
        raise InvalidArgumentError(f"Keyword '{NESTED}' for nested schema also given as input tensor name")
    header = InferHeader()
    # An input of that name comes before the id of the request.
    if "id" in root and "id" not in inputs:
        header.id = _id(root["id"])
    _read_members(header, inputs, _members(bytes(raw), root, inputs))
    return header


def inputs_header(values: Mapping[str, Any], inputs: Mapping[str, TensorSpec], request_id: str) -> InferHeader:
    """The request whose inputs have these ``values``, each a value or a flat list; errors as ``read_generate``."""
    return InferHeader(request_id, inputs=[_read_input(inputs[name], value) for name, value in values.items()])


def _id(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedRequestError(f"Unable to parse 'id': expected a string, found {kind_of(value)}")
    return value


def _members(raw: bytes, root: dict[str, Any], inputs: Mapping[str, TensorSpec]) -> list[tuple[str, Any]]:
    """The members of the request; an input that occurs twice is listed twice."""
    # orjson keeps the last of equal members alone. Only where a name occurs twice in the text is it parsed again.
    if any(raw.count(orjson.dumps(name)) > 1 for name in inputs):
        return _repeated_members(raw)
    return list(root.items())


class _Repeating(dict[str, Any]):
    """An object with the members ``pairs``, repeated ones included."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _repeated_members(raw: bytes) -> list[tuple[str, Any]]:
    try:
        found = json.loads(raw, object_pairs_hook=_Repeating, parse_int=orjson.loads)
    except (ValueError, RecursionError) as error:
        raise MalformedRequestError(f"failed to parse the request JSON buffer: {error}") from None
    return list(found.pairs)


def _read_members(header: InferHeader, inputs: Mapping[str, TensorSpec], members: _Members) -> None:
    check_number(len(members), "the object")
    for name, value in members:
        if name == NESTED:
            _read_nested(header, inputs, value)
        else:
            _read_member(header, inputs, name, value)


def _read_nested(header: InferHeader, inputs: Mapping[str, TensorSpec], found: Any) -> None:
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"Expected JSON object for keyword: '{NESTED}', found {kind_of(found)}")
    members = found.pairs if isinstance(found, _Repeating) else found.items()
    check_number(len(members), NESTED)
    try:
        for name, value in members:
            _read_member(header, inputs, name, value)
    except InvalidArgumentError as error:
        # The same class, which decides the status.
        raise type(error)(f"Converting keyword: '{NESTED}': {error}") from None


def _read_member(header: InferHeader, inputs: Mapping[str, TensorSpec], name: str, value: Any) -> None:
    tensor = inputs.get(name)
    if tensor is not None:
        header.inputs.append(_read_input(tensor, value))
    else:
        header.parameters[name] = _parameter(name, value)


def _parameter(name: str, value: Any) -> ParameterValue:
    if name.startswith("triton_"):
        raise InvalidArgumentError(RESERVED_KEY)
    if not isinstance(value, bool | int | float | str):
        raise InvalidArgumentError(
            f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
        )
    return value


def _read_input(tensor: TensorSpec, value: Any) -> InputHeader:
    data = value if isinstance(value, list) else [value]
    # Types are checked later, but a list in a list would pass there.
    for index, element in enumerate(data):
        if isinstance(element, list):
            raise MalformedRequestError(
                f"Unable to parse '{tensor.name}': expected a value or a flat array, found an array at element {index}"
            )
    shape = _shape(tensor, len(data))
    return InputHeader(tensor.name, tensor.dtype, shape, count_elements(shape, tensor.name), data, None)


def _shape(tensor: TensorSpec, count: int) -> tuple[int, ...]:
    """The shape for ``count`` values: what the fixed dimensions leave extends the innermost variable one."""
    fixed = prod(dim for dim in tensor.shape if dim >= 0)
    left, over = divmod(count, fixed) if fixed else (1, count)
    found = []
    for dim in reversed(tensor.shape):
        if dim < 0:
            dim, left = left, 1
        found.append(dim)
    if over or left != 1:
        raise InvalidArgumentError(f"The schema can not convert input '{tensor.name}' to tensor with proper shape")
    return tuple(reversed(found))


def encode_generated(
    model: str, version: int, request_id: str, outputs: Mapping[str, Array], wanted: Mapping[str, DataType]
) -> bytes:
    """A response as a flat JSON object, members in the order of their names; an output with one value becomes that
    value.

    Args:
        model, version: the model and version that executed the request.
        request_id: "" for none.
        outputs: of the response, with its parameters.
        wanted: the outputs to send, with their configured datatypes.

    Raises:
        InvalidArgumentError: an output cannot travel in JSON (FP16, BF16, BYTES that are not UTF-8).
        BackendError: a parameter cannot.
    """
    members = {name: value_json(name, value) for name, value in parameters_of(outputs).items()}
    members["model_name"] = orjson.dumps(model)
    members["model_version"] = b'"%d"' % version
    if request_id:
        members["id"] = orjson.dumps(request_id)
    # Last, so that an output has its value also where it is named like another member.
    members |= {name: _values(outputs[name], dtype, name) for name, dtype in wanted.items() if name in outputs}
    pieces = [b"%b:%b" % (value_json(name, name), members[name]) for name in sorted(members)]
    return b"{%b}" % b",".join(pieces)


def _values(array: Array, configured: DataType, name: str) -> bytes:
    found = encode_data(array, datatype_of(array, configured), name)
    return found[1:-1] if array.size == 1 else found

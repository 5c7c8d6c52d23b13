"""A ``ModelInferRequest`` that protobuf has parsed, read like the JSON part of a request over HTTP: into one header.

Source: the protocol's gRPC section: the types of parameters, and where the data of each input is. Nothing here knows
more of the model than its name, which errors give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from naiad.errors import InvalidArgumentError
from naiad.shared_memory.region import RegionRef
from naiad.tensor.dtypes import BY_WIRE, DataType
from naiad.wire.v2.contents import TypedContents, find_contents
from naiad.wire.v2.header import (
    InferHeader,
    InputHeader,
    OutputHeader,
    check_number,
    check_rank,
    check_sequence_name,
    count_elements,
)
from naiad.wire.v2.region_parameters import REGION, REGION_OFFSET, REGION_SIZE

EMPTY_FINAL: Final = "triton_enable_empty_final_response"
INVALID: Final = DataType("<invalid>", "TYPE_INVALID", np.dtype(np.void), 1)
"""Stands for a datatype that is none; it fits no model."""

Raw = bytes | memoryview
_RESERVED: Final = (
    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
    f"'triton_' are allowed: {EMPTY_FINAL}"
)
_CUSTOM: Final = ("bool_param", "int64_param", "string_param", "double_param")
_INT64: Final = ("int64_param",)
_BOOL: Final = ("bool_param",)


class ReadMessage(NamedTuple):
    """A request: its ``header``, and for each input its raw bytes or its typed contents; None for a region."""

    header: InferHeader
    sources: Sequence[Raw | TypedContents | None]


def read_message(message: Any, raws: Sequence[Raw], model: str) -> ReadMessage:
    """Read a request.

    Args:
        message: the ``ModelInferRequest``.
        raws: its raw tensors in order; the raw tensors in the message are ignored.
        model: the model's name.

    Raises:
        InvalidArgumentError: a value is of the wrong type or not allowed, or the data of an input is missing.
    """
    for name in ("inputs", "outputs", "parameters"):
        check_number(len(getattr(message, name)), name)
    header = InferHeader(id=message.id, binary_default=True)
    _read_parameters(header, message.parameters)
    sources = _read_inputs(header, message.inputs, raws, model)
    header.outputs = [_read_output(output) for output in message.outputs] or None
    return ReadMessage(header, sources)


def _read_parameters(header: InferHeader, found: Mapping[str, Any]) -> None:
    for key, parameter in found.items():
        if key == "sequence_id":
            header.sequence_id = _sequence_id(_value(key, parameter, ("int64_param", "string_param")))
        elif key in ("sequence_start", "sequence_end"):
            setattr(header, key, _value(key, parameter, _BOOL))
        elif key == "priority":
            header.priority = _not_negative(key, _value(key, parameter, ("int64_param", "uint64_param")))
        elif key == "timeout":
            header.timeout_us = _not_negative(key, _value(key, parameter, _INT64))
        elif key == EMPTY_FINAL:
            header.empty_final = _value(key, parameter, _BOOL)
        elif key.startswith("triton_"):
            raise InvalidArgumentError(_RESERVED)
        else:
            header.parameters[key] = _custom(key, parameter)


def _sequence_id(value: int | str) -> int | str:
    # The reference takes the 64 bits of a number as an unsigned one.
    return check_sequence_name(value) if isinstance(value, str) else value % 2**64


def _value(key: str, parameter: Any, kinds: Sequence[str]) -> Any:
    """The value of a parameter, which must be of one of the kinds."""
    kind = parameter.WhichOneof("parameter_choice")
    if kind not in kinds:
        raise InvalidArgumentError(f"invalid value type for '{key}' parameter, expected {' or '.join(kinds)}.")
    return getattr(parameter, kind)


def _not_negative(key: str, value: int) -> int:
    if value < 0:
        raise InvalidArgumentError(f"invalid value for '{key}', expected value >= 0.")
    return value


def _custom(key: str, parameter: Any) -> Any:
    kind = parameter.WhichOneof("parameter_choice")
    if kind not in _CUSTOM:
        raise InvalidArgumentError(
            f"invalid value type for '{key}' parameter, expected int64_param, bool_param, or string_param."
        )
    return getattr(parameter, kind)


def _read_inputs(header: InferHeader, inputs: Any, raws: Sequence[Raw], model: str) -> list[Raw | TypedContents | None]:
    sources: list[Raw | TypedContents | None] = []
    position = 0
    for found in inputs:
        given = _describe(found)
        source = _source(found, given, raws, position, model)
        # Raw tensors are those of the inputs that are not in a region, in their order.
        position += source is not None
        if source is not None and not isinstance(source, TypedContents):
            given.binary_size = len(source)
        header.inputs.append(given)
        sources.append(source)
    return sources


def _describe(found: Any) -> InputHeader:
    name = found.name
    check_rank(len(found.shape), name)
    shape = tuple(found.shape)
    # Negative sizes fit no model: the check against the model raises the error.
    elements = 0 if min(shape, default=0) < 0 else count_elements(shape, name)
    return InputHeader(name, BY_WIRE.get(found.datatype, INVALID), shape, elements, None, None)


def _source(
    found: Any, given: InputHeader, raws: Sequence[Raw], position: int, model: str
) -> Raw | TypedContents | None:
    if parameters := found.parameters:
        given.region = _region(parameters, given.name)
    if given.region is not None:
        if found.HasField("contents"):
            raise InvalidArgumentError(
                f"unexpected 'content' provided when using shared memory for input tensor '{given.name}' for model "
                f"'{model}'"
            )
        return None
    if found.HasField("contents"):
        # A request has all of its tensors raw or none.
        if raws:
            raise InvalidArgumentError(
                f"contents field must not be specified when using raw_input_contents for '{given.name}' for model "
                f"'{model}'"
            )
        return find_contents(found.contents, given, model)
    if position >= len(raws):
        raise InvalidArgumentError(
            f"unable to find data for input tensor '{given.name}' for model '{model}' in request."
        )
    return raws[position]


def _read_output(found: Any) -> OutputHeader:
    parameters = found.parameters
    output = OutputHeader(found.name, True)
    if not parameters:
        return output
    if "classification" in parameters:
        chosen = parameters["classification"]
        if chosen.WhichOneof("parameter_choice") != "int64_param":
            raise InvalidArgumentError("invalid value type for 'classification' parameter, expected int64_param")
        # The text is the reference's, though it refuses 0 as well.
        if chosen.int64_param <= 0:
            raise InvalidArgumentError("invalid value for 'classification' parameter, expected >= 0")
        output.classification = chosen.int64_param
    output.region = _region(parameters, output.name)
    if output.region is not None and output.classification:
        raise InvalidArgumentError("output can't set both 'shared_memory_region' and 'classification'")
    return output


def _region(parameters: Any, tensor: str) -> RegionRef | None:
    """The part of a region that an input or an output names; None without one."""
    if REGION not in parameters:
        for key in (REGION_OFFSET, REGION_SIZE):
            if key in parameters:
                raise InvalidArgumentError(
                    f"'{key}' can not be specified without '{REGION}' parameter for tensor '{tensor}'"
                )
        return None
    name = _region_value(parameters, REGION, "string_param", tensor)
    if REGION_SIZE not in parameters:
        raise InvalidArgumentError(
            f"'{REGION_SIZE}' must be specified along with '{REGION}' parameter for tensor '{tensor}'"
        )
    offset = _region_value(parameters, REGION_OFFSET, "int64_param", tensor) if REGION_OFFSET in parameters else 0
    return RegionRef(name, offset, _region_value(parameters, REGION_SIZE, "int64_param", tensor))


def _region_value(parameters: Any, key: str, kind: str, tensor: str) -> Any:
    if parameters[key].WhichOneof("parameter_choice") != kind:
        raise InvalidArgumentError(f"invalid value type for '{key}' parameter for tensor '{tensor}', expected {kind}.")
    return getattr(parameters[key], kind)

"""A large generate request as the JSON worker sends it: a description, then binary tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from naiad.config.spec import TensorSpec
from naiad.tensor.dtypes import BY_WIRE
from naiad.wire.json_text import dump_json, load_json
from naiad.wire.v2.generate import read_generate
from naiad.wire.v2.header import InferHeader, InputHeader, check_description, count_elements
from naiad.wire.v2.json import decode_data
from naiad.wire.v2.response import tensor_bytes

_ALIGNMENT: Final = 64


class UnpackedRequest(NamedTuple):
    """A parsed request: its header, whose inputs are all binary, and the offset of each after the description."""

    header: InferHeader
    offsets: Mapping[str, int]


def pack_inputs(inputs: Mapping[str, TensorSpec]) -> bytes:
    """The description of a model's inputs for the JSON worker."""
    return orjson.dumps([(t.name, t.dtype.wire, t.shape) for t in inputs.values()])


def pack_generate(known: bytes, raw: memoryview) -> list[bytes | memoryview]:
    """Parse the request ``raw`` for a model that ``pack_inputs`` described; returns its description, then its tensors.

    Raises:
        InvalidArgumentError: as ``read_generate``, ``decode_data`` and ``check_description``.
    """
    told = orjson.loads(known)
    header = read_generate(raw, {n: TensorSpec(n, BY_WIRE[wire], (), tuple(shape)) for n, wire, shape in told})
    tensors: list[Any] = [tensor_bytes(decode_data(given), given.dtype) for given in header.inputs]
    listed = [(i.name, i.dtype.wire, i.shape, len(t)) for i, t in zip(header.inputs, tensors, strict=True)]
    described = dump_json({"id": header.id, "parameters": header.parameters, "inputs": listed})
    check_description(len(described))
    # Spaces change nothing in JSON, and align the first tensor.
    return [described + b" " * (-len(described) % _ALIGNMENT), *tensors]


def unpack_generate(description: memoryview) -> UnpackedRequest:
    """The request that ``pack_generate`` described."""
    told = load_json(description)
    header = InferHeader(id=told["id"], parameters=told["parameters"])
    offsets: dict[str, int] = {}
    at = 0
    for name, wire, dims, size in told["inputs"]:
        shape = tuple(dims)
        header.inputs.append(InputHeader(name, BY_WIRE[wire], shape, count_elements(shape, name), None, size))
        offsets[name] = at
        at += size
    return UnpackedRequest(header, offsets)

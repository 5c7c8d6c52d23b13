"""Whether a response has the outputs that it should have."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson

from naiad.errors import InvalidArgumentError
from naiad.perf.steps import TensorValue
from naiad.perf.target.protocol import Problem
from naiad.tensor.bytes_codec import decode_bytes, encode_bytes
from naiad.tensor.dtypes import BY_WIRE

Outputs = Mapping[str, TensorValue]
KIND = "wrong output"
_SHOWN: Final = 60
"""How much of an element stands in an error."""


def find_difference(expected: Sequence[TensorValue], read: Callable[[], Outputs]) -> Problem | None:
    """The first difference between what is expected and what has come; None when there is none."""
    try:
        outputs = read()
    except (ValueError, LookupError, TypeError) as error:
        return KIND, f"the response cannot be read: {error}"
    for wanted in expected:
        found = outputs.get(wanted.name)
        if found is None:
            return KIND, f"the response has no output '{wanted.name}'"
        if found.datatype != wanted.datatype or found.shape != wanted.shape:
            got, due = (f"{value.datatype} of shape {list(value.shape)}" for value in (found, wanted))
            return KIND, f"'{wanted.name}' is {got}, expected {due}"
        if found.data != wanted.data:
            return KIND, f"'{wanted.name}' has other values than expected: {_where(found, wanted)}"
    return None


def _where(found: TensorValue, wanted: TensorValue) -> str:
    """The first element that differs; the shapes are the same."""
    count = math.prod(wanted.shape)
    try:
        got, due = _elements(found, count), _elements(wanted, count)
    except (InvalidArgumentError, ValueError, KeyError):
        return f"{len(found.data)} bytes, expected {len(wanted.data)}"
    if got.dtype == np.object_:
        (places,) = np.nonzero(got != due)
    else:
        # By their bits, in which NaN equals itself.
        (places,) = np.nonzero((_bits(got) != _bits(due)).any(axis=1))
    at = int(places[0])
    index = ",".join(str(part) for part in np.unravel_index(at, wanted.shape)) if wanted.shape else ""
    more = f" ({len(places)} of {count} elements differ)" if len(places) > 1 else ""
    return f"element [{index}] is {_shown(got[at])}, expected {_shown(due[at])}{more}"


def _elements(value: TensorValue, count: int) -> np.ndarray[Any, Any]:
    datatype = BY_WIRE[value.datatype]
    if datatype.is_bytes:
        return decode_bytes(value.data, count, value.name)
    if len(value.data) != count * datatype.itemsize:
        raise ValueError(f"{len(value.data)} bytes for {count} elements")
    return np.frombuffer(value.data, datatype.numpy)


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return array.view(np.uint8).reshape(array.size, array.itemsize)


def _shown(element: Any) -> str:
    text = repr(element) if isinstance(element, bytes) else str(element)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def http_outputs(body: bytes, header_length: int) -> dict[str, TensorValue]:
    """The outputs of a response over HTTP, whether they are JSON or binary."""
    outputs: dict[str, TensorValue] = {}
    at = header_length
    for entry in orjson.loads(body[:header_length]).get("outputs", []):
        name, datatype, shape = entry["name"], entry["datatype"], tuple(entry["shape"])
        size = entry.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = _from_json(entry.get("data", []), datatype)
        else:
            data, at = body[at : at + size], at + size
        outputs[name] = TensorValue(name, datatype, shape, data)
    return outputs


def _from_json(values: Any, datatype: str) -> bytes:
    found = BY_WIRE[datatype]
    if not found.is_bytes:
        return np.array(values, found.numpy).tobytes()
    flat = [_as_bytes(value) for value in np.array(values, np.object_).ravel()]
    return encode_bytes(np.array(flat, np.object_))


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return str(value).encode()


def grpc_outputs(response: Any) -> dict[str, TensorValue]:
    """The outputs of a ``ModelInferResponse`` with raw contents.

    Raises:
        ValueError: the contents are not raw.
    """
    raws = response.raw_output_contents
    if len(raws) != len(response.outputs):
        raise ValueError(f"{len(response.outputs)} outputs with {len(raws)} raw contents")
    return {
        output.name: TensorValue(output.name, output.datatype, tuple(output.shape), bytes(raw))
        for output, raw in zip(response.outputs, raws, strict=True)
    }

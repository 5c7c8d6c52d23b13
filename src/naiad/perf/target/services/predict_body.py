"""Bodies of TensorFlow Serving's predict API over REST: tensors as rows (``instances``) or as columns (``inputs``).

Source: the "RESTful API" page of TensorFlow Serving.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.protocol import TargetError
from naiad.tensor.bytes_codec import decode_bytes, encode_bytes
from naiad.tensor.dtypes import BY_WIRE

_SMALL_FLOATS = ("FP16", "BF16")


def predict_body(step: Step, signature: str, *, is_rows: bool) -> bytes:
    """The body of a request.

    Args:
        is_rows: one entry for each item of the batch, which all tensors have as their first dimension; otherwise one
            for each tensor.

    Raises:
        TargetError: JSON has no form for a tensor.
    """
    arrays = {value.name: _array(value) for value in step.inputs}
    content: Any
    if not is_rows:
        content = {"inputs": {name: array[()] if array.ndim == 0 else array for name, array in arrays.items()}}
    elif len(arrays) == 1:
        content = {"instances": next(iter(arrays.values()))}
    else:
        names = list(arrays)
        rows = zip(*arrays.values(), strict=True)
        content = {"instances": [dict(zip(names, row, strict=True)) for row in rows]}
    return _dumped({"signature_name": signature, **content}, arrays)


def _array(value: TensorValue) -> np.ndarray[Any, Any]:
    datatype = BY_WIRE.get(value.datatype)
    if datatype is None:
        raise TargetError(f"the input '{value.name}' is {value.datatype}, which has no form in JSON")
    if datatype.is_bytes:
        elements = decode_bytes(value.data, math.prod(value.shape), value.name)
        found = np.empty(len(elements), np.object_)
        found[:] = [_text(element) for element in elements.tolist()]
        return found.reshape(value.shape)
    array = np.frombuffer(value.data, datatype.numpy).reshape(value.shape)
    return array.astype(np.float32) if value.datatype in _SMALL_FLOATS else array


def _text(element: bytes) -> Any:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(element).decode()}


def _dumped(body: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    floats = [array for array in arrays.values() if array.dtype.kind == "f"]
    if all(np.isfinite(array).all() for array in floats):
        return orjson.dumps(body, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)
    # The API takes the words NaN and Infinity, for which strict JSON has no form.
    return json.dumps(body, default=_plain).encode()


def _plain(value: Any) -> Any:
    return value.tolist()


def predicted_outputs(body: bytes, model: ModelDescription) -> dict[str, TensorValue]:
    """The outputs of a response, whose form follows that of the request.

    Raises:
        ValueError, LookupError, TypeError: it is no response of the predict API.
    """
    found = json.loads(body)
    names = [tensor.name for tensor in model.outputs]
    content = found["predictions"] if "predictions" in found else found["outputs"]
    if len(names) == 1:
        # The only output has no name.
        values = {names[0]: content}
    elif "predictions" in found:
        values = {name: [row[name] for row in content] for name in names}
    else:
        values = {name: content[name] for name in names}
    return {tensor.name: _value(tensor.name, tensor.datatype, values[tensor.name]) for tensor in model.outputs}


def _value(name: str, wire: str, nested: Any) -> TensorValue:
    datatype = BY_WIRE[wire]
    if not datatype.is_bytes:
        array = np.array(nested, np.float32 if wire in _SMALL_FLOATS else datatype.numpy)
        return TensorValue(name, wire, array.shape, array.astype(datatype.numpy).tobytes())
    texts = np.array(nested, np.object_)
    elements = np.array([_element(value) for value in texts.ravel()], np.object_)
    return TensorValue(name, wire, texts.shape, encode_bytes(elements))


def _element(value: Any) -> bytes:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else str(value).encode()

"""The response to an inference request as bytes: a JSON part and, after it, the binary tensors.

Source: protocol sections "Inference Response JSON Object" and "Binary Tensor Data Extension". Compact JSON, keys in the
reference's order: id, model_name, model_version, parameters, outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import orjson

from naiad.request import NO_PARAMETERS, Array, Parameters
from naiad.tensor.bytes_codec import Raw, encode_bytes
from naiad.tensor.dtypes import BY_NUMPY, DataType
from naiad.tensor.packed_bytes import PACKED, serialised
from naiad.wire.v2.base64_text import encode_base64
from naiad.wire.v2.json import encode_data
from naiad.wire.v2.parameters import parameters_json


class OutputPart(NamedTuple):
    """One output to encode: as binary data behind the JSON, or inside it, as ``base64`` text or as a list; no data if
    it is ``placed`` elsewhere.
    """

    name: str
    dtype: DataType
    array: Array
    binary: bool
    placed: bool = False
    base64: bool = False

    @property
    def in_json(self) -> bool:
        """Its data go into the JSON."""
        return not self.binary and not self.placed


class EncodedResponse(NamedTuple):
    """``json`` first, then ``tensors`` (binary outputs in order); ``binary`` is true when any output is binary."""

    json: bytes
    tensors: list[Raw]
    binary: bool


def encode_response(
    model: str, version: int, request_id: str, outputs: Sequence[OutputPart], parameters: Parameters = NO_PARAMETERS
) -> EncodedResponse:
    """Encode one response.

    Raises:
        InvalidArgumentError: an output cannot travel in JSON (FP16, BF16, BYTES that are not UTF-8).
        BackendError: a parameter cannot.
    """
    tensors: list[Raw] = []
    # Joined once: data of an output are copied no more often than that.
    pieces = [response_opening(request_id), model_head(model, version, parameters)]
    for number, output in enumerate(outputs):
        pieces.append(b"," if number else b"")
        pieces.append(output_head(output.name, output.dtype, output.array.shape))
        if output.placed:
            pieces.append(b"}")
        elif output.binary:
            raw = tensor_bytes(output.array, output.dtype)
            tensors.append(raw)
            pieces.append(b',"parameters":{"binary_data_size":%d}}' % len(raw))
        elif output.base64:
            pieces += (b',"data":{"b64":"', encode_base64(tensor_bytes(output.array, output.dtype)), b'"}}')
        else:
            pieces += (b',"data":', encode_data(output.array, output.dtype, output.name), b"}")
    pieces.append(b"]}")
    return EncodedResponse(b"".join(pieces), tensors, bool(tensors))


def response_opening(request_id: str) -> bytes:
    """The opening of a response, with the caller's id when there is one."""
    return b'{"id":%s,' % orjson.dumps(request_id) if request_id else b"{"


def model_head(model: str, version: int, parameters: Parameters = NO_PARAMETERS) -> bytes:
    """The part of a response between the id and the first output; errors as ``parameters_json``."""
    parameters_text = parameters_json(parameters)
    return b'"model_name":%s,"model_version":"%d",%s"outputs":[' % (orjson.dumps(model), version, parameters_text)


def output_head(name: str, dtype: DataType, shape: tuple[int, ...]) -> bytes:
    """The opening of one output: name, datatype and shape."""
    dims = ",".join(map(str, shape)).encode()
    return b'{"name":%s,"datatype":"%s","shape":[%s]' % (orjson.dumps(name), dtype.wire.encode(), dims)


def datatype_of(array: Array, configured: DataType) -> DataType:
    """The actual datatype of an output; the configured one for arrays of a type that the protocol lacks."""
    return BY_NUMPY.get(array.dtype, configured)


def tensor_bytes(array: Array, dtype: DataType) -> Raw:
    """An output as binary data, little-endian and row-major, without a copy where its memory already is that."""
    if dtype.is_bytes:
        return encode_bytes(array) if type(array) is not PACKED else serialised(array)
    if array.size == 0:
        return b""
    # Through uint8: bfloat16 is not a type that the buffer protocol knows.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

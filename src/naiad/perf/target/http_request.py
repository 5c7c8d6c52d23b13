"""Inference requests of the KServe protocol v2 over HTTP as bytes, made once and sent many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson

from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.protocol import TargetError
from naiad.shared_memory.region import RegionRef
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE
from naiad.wire.compression import compress
from naiad.wire.v2.region_parameters import region_parameters

_LEVEL: Final = 6
"""The level of zlib that requests are compressed at."""


class HttpRequestBytes:
    """A whole request, with its head.

    Attributes:
        index: which of the steps it was made from.
        size: its bytes.
        keeps_body: whether the body of its response is looked at.
        expected: the outputs that the response must have; empty when any will do.
        body: the body of the last response, where ``keeps_body`` is true.
        header_length: how much of it is JSON, where tensors follow.
    """

    __slots__ = ("body", "expected", "header_length", "index", "keeps_body", "size", "wire")

    def __init__(
        self, wire: bytes, index: int = 0, expected: Sequence[TensorValue] = (), *, keeps_body: bool = False
    ) -> None:
        self.wire = wire
        self.index = index
        self.size = len(wire)
        self.expected = expected
        self.keeps_body = keeps_body or bool(expected)
        self.body = b""
        self.header_length = 0

    @property
    def last_response(self) -> tuple[bytes, int]:
        """The last response."""
        return self.body, self.header_length


class HttpRequestWriter:
    """Writes the requests for one model.

    Args:
        path: of the request, with the model and its version.
        headers: name and value of each header beside those of the protocol.
        compression: none, gzip or deflate.
        input_format, output_format: binary or json.
        keeps_responses: whether responses are kept for an export.
    """

    def __init__(
        self,
        model: ModelDescription,
        path: str,
        authority: str,
        headers: Sequence[tuple[str, str]],
        compression: str,
        input_format: str,
        output_format: str,
        parameters: dict[str, Any],
        *,
        keeps_responses: bool = False,
    ) -> None:
        self._keeps_responses = keeps_responses
        self._start = request_head("POST", path, authority, headers)
        self._compression = compression
        self._is_binary = input_format == "binary"
        self._parameters = parameters
        is_binary_output = output_format == "binary"
        self._outputs = [{"name": o.name, "parameters": {"binary_data": is_binary_output}} for o in model.outputs]

    def place_outputs(self, places: Mapping[str, RegionRef]) -> None:
        """Have the outputs written to shared memory in all requests that are encoded from now on."""
        self._outputs = [{"name": name, "parameters": region_parameters(place)} for name, place in places.items()]

    def encode(self, step: Step, index: int) -> EncodedHttpStep:
        """The bytes of a step.

        Raises:
            TargetError: JSON cannot carry one of its tensors.
        """
        return EncodedHttpStep(self, step, index)

    def request(self, step: Step, index: int, inputs: bytes, parameters: dict[str, Any]) -> HttpRequestBytes:
        """A request of a step around the JSON of its inputs."""
        wire = self.write(step, inputs, parameters)
        return HttpRequestBytes(wire, index, step.expected, keeps_body=self._keeps_responses)

    def write(self, step: Step, inputs: bytes, parameters: dict[str, Any]) -> bytes:
        """A whole request around the JSON of its inputs."""
        header = b'{"inputs":' + inputs + b',"outputs":' + orjson.dumps(self._outputs)
        given = self._parameters | parameters
        if given:
            header += b',"parameters":' + orjson.dumps(given)
        header += b"}"
        blobs = [value.data for value in step.inputs if value.region is None] if self._is_binary else []
        lines = b""
        body: bytes = b"".join([header, *blobs])
        if blobs:
            lines += b"Inference-Header-Content-Length: %d\r\nContent-Type: application/octet-stream\r\n" % len(header)
        else:
            lines += b"Content-Type: application/json\r\n"
        if self._compression != "none":
            body = compress([body], self._compression, _LEVEL)
            coding = self._compression.encode()
            lines += b"Content-Encoding: %b\r\nAccept-Encoding: %b\r\n" % (coding, coding)
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (self._start, lines, len(body), body)

    def inputs_json(self, step: Step) -> bytes:
        """The member ``inputs``.

        Raises:
            TargetError: JSON cannot carry one of them.
        """
        return orjson.dumps([self._input(value) for value in step.inputs], option=orjson.OPT_SERIALIZE_NUMPY)

    def _input(self, value: TensorValue) -> dict[str, Any]:
        found: dict[str, Any] = {"name": value.name, "datatype": value.datatype, "shape": list(value.shape)}
        if value.region is not None:
            found["parameters"] = region_parameters(value.region)
        elif self._is_binary:
            found["parameters"] = {"binary_data_size": len(value.data)}
        else:
            found["data"] = _elements(value)
        return found


class EncodedHttpStep:
    """A step as bytes; its requests in sequences are written when they are needed."""

    __slots__ = ("_index", "_inputs", "_step", "_writer", "plain")

    def __init__(self, writer: HttpRequestWriter, step: Step, index: int) -> None:
        self._writer = writer
        self._step = step
        self._index = index
        self._inputs = writer.inputs_json(step)
        self.plain = writer.request(step, index, self._inputs, {})

    def in_sequence(self, sequence: int, *, is_first: bool, is_last: bool) -> HttpRequestBytes:
        """The step as a request of a sequence."""
        place = {"sequence_id": sequence, "sequence_start": is_first, "sequence_end": is_last}
        return self._writer.request(self._step, self._index, self._inputs, place)


def request_head(method: str, path: str, authority: str, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """The request line and the headers that all requests have in common."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {authority}", "User-Agent: naiad-perf"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, ""]).encode("latin-1", "replace")


def _elements(value: TensorValue) -> Any:
    """The elements of a tensor for JSON, row by row."""
    datatype = BY_WIRE.get(value.datatype)
    if datatype is None or not datatype.in_json:
        raise TargetError(
            f"the input '{value.name}' is {value.datatype}, which has no form in JSON: use --input-tensor-format binary"
        )
    if not datatype.is_bytes:
        return np.frombuffer(value.data, datatype.numpy)
    count = int(np.prod(value.shape, dtype=np.int64))
    elements: list[bytes] = decode_bytes(value.data, count, value.name).tolist()
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError as error:
        raise TargetError(
            f"the input '{value.name}' has the element {error.object[:40]!r}, which is not UTF-8 and has no form in "
            "JSON: use --input-tensor-format binary"
        ) from None

"""Requests as bytes. What requests with the same tensors have in common is written once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import orjson

from naiad.bounded_dict import BoundedDict
from naiad.client.region import PlacedTensors
from naiad.errors import InvalidArgumentError
from naiad.shared_memory.region import RegionRef
from naiad.tensor.dtypes import DataType
from naiad.tensor.input_array import Array, input_array
from naiad.tensor.packed_bytes import serialised
from naiad.wire.v2.region_parameters import region_parameters

_MAX_HEADS: Final = 1024
_JOINED_BYTES: Final = 1 << 16


class InferOptions(NamedTuple):
    """What a caller says of a request beside its inputs."""

    version: str = ""
    outputs: tuple[str, ...] = ()
    request_id: str = ""
    parameters: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}


InputEntry = tuple[str, str, tuple[int, ...], int | RegionRef]
"""Name, datatype, shape, and the size in the request or the place in a region."""
WantedOutput = str | tuple[str, RegionRef | None]
"""A name, or a name and the place in a region, None for an output that is sent."""


class RequestEncoder:
    """Writes the requests to one server.

    Args:
        authority: ``host:port``.
        headers: of every request.
    """

    def __init__(self, authority: str, headers: Mapping[str, str]) -> None:
        self._common = _lines({"Host": authority, "User-Agent": "naiad-client", **headers})
        self._heads: dict[object, bytes] = BoundedDict(_MAX_HEADS)

    def plain(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}) -> bytes:
        """A request with a JSON body, or with none."""
        return b"%b %b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n%b" % (
            method.encode(),
            path.encode(),
            self._common,
            _lines(headers),
            len(body),
            body,
        )

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        options: InferOptions,
        datatypes: Mapping[str, DataType],
        placed: PlacedTensors | None = None,
    ) -> list[bytes | memoryview]:
        """An inference request, whose tensors are binary; in parts, so that large ones are not copied.

        Args:
            datatypes: of the inputs that are lists.
            placed: takes the large tensors; None for none.

        Raises:
            InvalidArgumentError: an input is no tensor of the protocol.
        """
        entries: list[InputEntry] = []
        blobs: list[bytes | memoryview] = []
        for name, value in inputs.items():
            array, datatype = input_array(name, value, datatypes.get(name))
            blob = tensor_bytes(array, datatype)
            place = None if placed is None else placed.place(blob)
            entries.append((name, datatype.wire, array.shape, len(blob) if place is None else place))
            if place is None:
                blobs.append(blob)
        outputs = options.outputs if placed is None or not placed.outputs else tuple(placed.outputs.items())
        key = (model, options.version, outputs, tuple(entries))
        is_common = not (options.request_id or options.parameters or options.headers)
        head = self._heads.get(key) if is_common else None
        if head is None:
            head = self._head(model, entries, outputs, options)
            if is_common:
                self._heads[key] = head
        parts = [head, *blobs]
        return [b"".join(parts)] if sum(map(len, parts)) <= _JOINED_BYTES else parts

    def _head(
        self, model: str, entries: Sequence[InputEntry], outputs: Sequence[WantedOutput], options: InferOptions
    ) -> bytes:
        given: dict[str, Any] = {"inputs": [_entry(*entry) for entry in entries]}
        if options.request_id:
            given["id"] = options.request_id
        if outputs:
            given["outputs"] = [_wanted(output) for output in outputs]
            given["parameters"] = dict(options.parameters)
        else:
            given["parameters"] = {"binary_data_output": True, **options.parameters}
        try:
            header = orjson.dumps(given)
        except TypeError as error:
            raise InvalidArgumentError(f"a parameter of the request cannot be sent: {error}") from None
        size = len(header) + sum(entry[3] for entry in entries if isinstance(entry[3], int))
        return (
            b"POST %b/infer HTTP/1.1\r\n%b%bContent-Type: application/octet-stream\r\n"
            b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%b"
        ) % (
            model_path(model, options.version).encode(),
            self._common,
            _lines(options.headers),
            len(header),
            size,
            header,
        )


def _lines(headers: Mapping[str, str]) -> bytes:
    check_headers(headers)
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers that would be more than one line.

    Raises:
        InvalidArgumentError: one has a line break or a character outside Latin-1, or no name.
    """
    for name, value in headers.items():
        if any(mark in name + value for mark in "\r\n") or not name:
            raise InvalidArgumentError(f"the header {name!r}: {value!r} has a line break, or no name")
        if max(name + value) > "\xff":
            raise InvalidArgumentError(f"the header {name!r}: {value!r} has a character that headers cannot have")


def model_path(model: str, version: str = "") -> str:
    """The path of a model, or of a version of it."""
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _entry(name: str, datatype: str, shape: tuple[int, ...], data: int | RegionRef) -> dict[str, Any]:
    parameters = {"binary_data_size": data} if isinstance(data, int) else region_parameters(data)
    return {"name": name, "datatype": datatype, "shape": list(shape), "parameters": parameters}


def _wanted(output: WantedOutput) -> dict[str, Any]:
    name, place = (output, None) if isinstance(output, str) else output
    return {"name": name, "parameters": {"binary_data": True} if place is None else region_parameters(place)}


def tensor_bytes(array: Array, datatype: DataType) -> bytes | memoryview:
    """The elements of a tensor as both protocols carry them."""
    if datatype.is_bytes:
        return bytes(serialised(array))
    if array.nbytes <= _JOINED_BYTES:
        return array.tobytes()
    # As bytes: BF16 has no buffer of its own.
    return array.reshape(-1).view(np.uint8).data

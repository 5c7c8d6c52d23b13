"""The outputs of a response, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from naiad.bounded_dict import BoundedDict
from naiad.client.errors import ResponseError
from naiad.client.region import PlacedTensors
from naiad.errors import InvalidArgumentError
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE, DataType

Array = np.ndarray[Any, Any]
_MAX_HEADERS: Final = 1024
_MAX_HEADER_BYTES: Final = 4096


class InferResult(Mapping[str, Array]):
    """A response: its outputs by name. BYTES are objects of ``bytes``. The arrays can only be read.

    Attributes:
        model: which responded.
        version: of it.
        id: of the request.
        parameters: the model's own.
    """

    __slots__ = ("_outputs", "id", "model", "parameters", "version")

    def __init__(
        self, model: str, version: str, id: str, parameters: Mapping[str, Any], outputs: dict[str, Array]
    ) -> None:
        self.model = model
        self.version = version
        self.id = id
        self.parameters = parameters
        self._outputs = outputs

    def __getitem__(self, name: str) -> Array:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def values(self) -> ValuesView[Array]:
        """The outputs."""
        return self._outputs.values()

    def __repr__(self) -> str:
        return f"InferResult(model={self.model!r}, version={self.version!r}, {self._outputs!r})"


class _Output(NamedTuple):
    """Where an output lies: ``data`` is its JSON, None for one in the binary part. One that is placed is in neither."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    begin: int
    end: int
    data: Any
    is_placed: bool


class _HttpLayout(NamedTuple):
    """What the JSON part of a response says."""

    model: str
    version: str
    id: str
    parameters: Mapping[str, Any]
    outputs: tuple[_Output, ...]


_layouts: dict[bytes, _HttpLayout] = BoundedDict(_MAX_HEADERS)


def read_result(body: bytes, header_bytes: int, placed: PlacedTensors | None = None) -> InferResult:
    """The response to an inference request.

    Args:
        body: of the response.
        header_bytes: the size of its JSON part.
        placed: the outputs in a region.

    Raises:
        ResponseError: it is none.
    """
    header = body[:header_bytes]
    layout = _layouts.get(header)
    try:
        if layout is None:
            layout = _read_layout(header)
            # Other responses differ in the JSON itself, or are large.
            is_fixed = all(output.data is None for output in layout.outputs)
            if is_fixed and header_bytes <= _MAX_HEADER_BYTES and not layout.id:
                _layouts[header] = layout
        outputs = {output.name: _output_array(output, body, header_bytes, placed) for output in layout.outputs}
    except (ValueError, KeyError, TypeError, AttributeError, InvalidArgumentError) as error:
        raise ResponseError(200, f"the server responded with something else than outputs: {error!r}") from None
    return InferResult(layout.model, layout.version, layout.id, layout.parameters, outputs)


def _read_layout(header: bytes) -> _HttpLayout:
    found = orjson.loads(header)
    outputs: list[_Output] = []
    at = 0
    for entry in found.get("outputs", ()):
        size = entry.get("parameters", {}).get("binary_data_size")
        data = entry.get("data") if size is None else None
        is_placed = size is None and "data" not in entry
        end = at + (size or 0)
        datatype, shape = BY_WIRE[entry["datatype"]], tuple(entry["shape"])
        outputs.append(_Output(entry["name"], datatype, shape, at, end, data, is_placed))
        at = end
    model, version = found.get("model_name", ""), str(found.get("model_version", ""))
    return _HttpLayout(model, version, found.get("id", ""), found.get("parameters", {}), tuple(outputs))


def _output_array(output: _Output, body: bytes, header_bytes: int, placed: PlacedTensors | None) -> Array:
    if output.is_placed:
        if placed is None:
            raise ValueError(f"the output '{output.name}' has no data")
        return placed.output(output.name, output.datatype, output.shape)
    if output.data is not None:
        return _from_json(output)
    begin, end = header_bytes + output.begin, header_bytes + output.end
    return tensor_array(output.name, output.datatype, output.shape, body, begin, end)


def tensor_array(name: str, datatype: DataType, shape: tuple[int, ...], data: bytes, begin: int, end: int) -> Array:
    """The array of a tensor whose elements lie from ``begin`` to ``end`` in ``data``.

    Raises:
        ValueError, InvalidArgumentError: they are not as many as the shape says.
    """
    if datatype.is_bytes:
        count = int(np.prod(shape, dtype=np.int64))
        return decode_bytes(memoryview(data)[begin:end], count, name).reshape(shape)
    dtype = datatype.numpy
    if end > len(data):
        raise ValueError(f"the output '{name}' is cut off")
    found = np.frombuffer(data, dtype, (end - begin) // dtype.itemsize, begin).reshape(shape)
    # Other libraries want elements where the processor reads them fastest.
    return found if found.flags.aligned else found.copy()


def _from_json(output: _Output) -> Array:
    if not output.datatype.is_bytes:
        return np.array(output.data, output.datatype.numpy).reshape(output.shape)
    made = np.empty(int(np.prod(output.shape, dtype=np.int64)), object)
    made[:] = [v.encode() if isinstance(v, str) else v for v in np.array(output.data, object).ravel()]
    return made.reshape(output.shape)

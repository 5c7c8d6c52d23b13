"""Reading an inference request in full: its JSON part, its tensors, and the validation of both against the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from naiad.config.spec import ModelSpec, TensorSpec
from naiad.engine.request_validation import check_repeats, check_size
from naiad.errors import InvalidArgumentError, UnsupportedError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.http.server.exchange import Body
from naiad.frontends.inference.request_planner import Planner, read_bytes
from naiad.request import Array, request_label
from naiad.wire.v2.base64_text import decode_base64
from naiad.wire.v2.binary import BinaryPlan
from naiad.wire.v2.header import InferHeader, InputHeader, parse_infer_header
from naiad.wire.v2.json import decode_data
from naiad.wire.v2.json_template import Recalled, Templates

RAW_INPUT: Final = "raw_input"
"""The name of a raw tensor in the reference's texts."""


class DecoupledModelError(UnsupportedError):
    """A decoupled model was requested over an endpoint that sends exactly one response."""


class HeaderSizeError(InvalidArgumentError):
    """The header Inference-Header-Content-Length does not fit the body."""


class ReadRequest(NamedTuple):
    """A valid request: its id, its plan (which serves the next such request too) and its tensors."""

    id: str
    plan: BinaryPlan
    inputs: dict[str, Array]


class RequestReader:
    """Reads and checks the requests for one loaded model.

    Requests with their data in JSON never have the same bytes twice, but mostly the same text around the data, or at
    least the same schema: plans are cached by both. ``model`` is the model.
    """

    def __init__(self, model: ServingModel) -> None:
        self.model = model
        self._plans = Planner(model, BinaryPlan)
        self._templates = Templates()

    def recall(self, body: Body) -> Recalled | None:
        """A request that is JSON alone and differs from an earlier one in its id and its data only; None otherwise."""
        return self._templates.recall(body if not isinstance(body, memoryview) else bytes(body))

    def read(self, body: Body, header_length: int | None) -> ReadRequest:
        """Read and check one request.

        Args:
            body: the whole body.
            header_length: bytes of the JSON part as the header Inference-Header-Content-Length says; 0 for a raw
                tensor, None for a body that is JSON alone.

        Raises:
            InvalidArgumentError: the request is malformed or does not fit the model.
            UnsupportedError: it asks for an unsupported extension.
        """
        if header_length == 0 or (header_length is None and not body):
            return _read_raw(self.model, self._plans, body)
        header, start = _read_header(body, header_length)
        spec = self.model.spec
        offsets = _locate(header, spec, len(body) - start)
        plan = self._plans.plan(header, offsets)
        inputs = plan.views(body, start)
        _read_others(header, spec, offsets, body, start, inputs)
        if start == len(body) and plan.regions is None:
            # Only bodies without tensors and regions: a template says where the data stand in the text.
            self._templates.learn(body if not isinstance(body, memoryview) else bytes(body), header, plan)
        return ReadRequest(header.id, plan, inputs)


def _read_header(body: Body, header_length: int | None) -> tuple[InferHeader, int]:
    """The JSON part, and where it ends."""
    start = len(body) if header_length is None else header_length
    if not 0 < start <= len(body):
        raise HeaderSizeError(f"inference header size should be in range (0, {len(body)}), got: {start}")
    # A slice of a view: the JSON part of a large body is not copied.
    return parse_infer_header(body if start == len(body) else memoryview(body)[:start]), start


def _locate(header: InferHeader, spec: ModelSpec, available: int) -> dict[str, int]:
    """The offset of each binary input behind the JSON part; their sizes must use up the bytes that came, exactly."""
    offsets: dict[str, int] = {}
    offset = 0
    for index, given in enumerate(header.inputs, 1):
        if given.binary_size is None:
            continue
        # Checked before the tensors are cut: a view beyond the body would only be shorter.
        if offset + given.binary_size > available:
            check_repeats("input", [described.name for described in header.inputs[:index]], header.id)
            raise InvalidArgumentError(
                f"unexpected size for input '{given.name}', expecting {given.binary_size - (available - offset)} "
                f"additional bytes for model '{spec.name}'"
            )
        offsets[given.name] = offset
        offset += given.binary_size
    if offset != available:
        raise InvalidArgumentError(f"unexpected additional input data for model '{spec.name}'")
    return offsets


def _read_others(
    header: InferHeader, spec: ModelSpec, offsets: Mapping[str, int], body: Body, start: int, inputs: dict[str, Array]
) -> None:
    """The inputs that are not plain views: data in JSON, and BYTES. Those in regions come later."""
    for given in header.inputs:
        if given.region is not None:
            continue
        if given.base64 is not None:
            inputs[given.name] = _read_base64(given, spec, header.id)
        elif given.binary_size is None:
            inputs[given.name] = decode_data(given, spec.name, header.id)
        elif given.dtype.is_bytes:
            begin = start + offsets[given.name]
            raw = memoryview(body)[begin : begin + given.binary_size]
            inputs[given.name] = read_bytes(given, spec, raw, header.id)


def _read_base64(given: InputHeader, spec: ModelSpec, request_id: str) -> Array:
    raw = decode_base64(given)
    if given.dtype.is_bytes:
        return read_bytes(given, spec, raw, request_id)
    return np.ndarray(given.shape, given.dtype.numpy, raw)


def _read_raw(model: ServingModel, plans: Planner[BinaryPlan], body: Body) -> ReadRequest:
    """A raw request: the whole body is the only tensor; its shape follows from the model and the size."""
    spec = model.spec
    label = request_label("")
    if len(spec.inputs) != 1:
        raise InvalidArgumentError(
            f"{label}Raw request must only have 1 input (found 1) to be deduced but got {len(spec.inputs)} inputs in "
            f"'{spec.name}' model configuration"
        )
    tensor = next(iter(spec.inputs.values()))
    shape = _raw_shape(tensor, spec, len(body), label)
    elements = 1
    for dim in shape:
        elements *= dim
    if not tensor.dtype.is_bytes:
        check_size(spec, RAW_INPUT, elements * tensor.dtype.itemsize, len(body), "")
    given = InputHeader(tensor.name, tensor.dtype, shape, elements, None, len(body))
    header = InferHeader(binary_default=True, inputs=[given])
    # Not cached: the shape differs with the size of each body.
    plan = plans.make(header, {tensor.name: 0})
    inputs = plan.views(body, 0)
    if tensor.dtype.is_bytes:
        inputs[tensor.name] = _one_string(bytes(body)).reshape(shape)
    return ReadRequest("", plan, inputs)


def _one_string(raw: bytes) -> Array:
    # np.array would make fixed-length bytes, which lose zeros at the end.
    array: Array = np.empty(1, np.object_)
    array[0] = raw
    return array


def _raw_shape(tensor: TensorSpec, spec: ModelSpec, size: int, label: str) -> tuple[int, ...]:
    """The shape of a raw tensor of ``size`` bytes: batch 1, and the one variable dimension as the size says."""
    dims = tensor.dims
    if tensor.dtype.is_bytes:
        if dims != (1,):
            raise InvalidArgumentError(
                f"{label}For BYTE datatype raw input '{tensor.name}', the model must have input shape [1]"
            )
        return (1, 1) if spec.max_batch_size else (1,)
    variable = sum(dim == -1 for dim in dims)
    if variable > 1:
        raise InvalidArgumentError(
            f"{label}The shape of the raw input '{tensor.name}' can not be deduced because there are more than one "
            "variable-sized dimension"
        )
    known = tensor.dtype.itemsize
    for dim in dims:
        known *= 1 if dim == -1 else dim
    count = size // known
    shape = tuple(count if dim == -1 else dim for dim in dims)
    return (1, *shape) if spec.max_batch_size else shape

"""Requests that go straight to a model's scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from naiad.engine.request_validation import check_request
from naiad.errors import NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.perf.steps import Step, TensorValue
from naiad.perf.target.protocol import TargetError
from naiad.request import SEQUENCE_END, SEQUENCE_START, Array, InferRequest, ParameterValue, RequestOptions
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE, DataType


class GivenInput(NamedTuple):
    """An input as the check of requests wants it."""

    name: str
    dtype: DataType
    shape: tuple[int, ...]


class ResponseTaker(Protocol):
    """Hears of the responses to one request."""

    def take(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, *, is_final: bool) -> None:
        """One response, or with neither outputs nor an error the end alone."""
        ...


class EngineRequest(InferRequest):
    """A request of the load generator, without a front end."""

    __slots__ = ("_taker",)

    def __init__(
        self, taker: ResponseTaker, options: RequestOptions, inputs: Mapping[str, Array], received_ns: int
    ) -> None:
        super().__init__(options, inputs, "", received_ns)
        self._taker = taker

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Hand the only response over."""
        self._taker.take(outputs, error, is_final=True)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Hand one of several responses over."""
        self._taker.take(outputs, error, is_final=final)


class EngineRequestParts:
    """What requests to a model are made of, each with the same tensors.

    Attributes:
        index: which of the steps it was made from.
        size: the bytes of its tensors.
        expected: the outputs that responses must have; empty when any will do.
        keeps_outputs: whether the outputs of responses are kept.
        last_response: those of the last response.
    """

    __slots__ = ("expected", "index", "inputs", "keeps_outputs", "last_response", "options", "size")

    def __init__(
        self,
        options: RequestOptions,
        inputs: Mapping[str, Array],
        index: int,
        expected: tuple[TensorValue, ...],
        size: int,
        *,
        keeps_outputs: bool,
    ) -> None:
        self.keeps_outputs = keeps_outputs
        self.last_response: tuple[TensorValue, ...] = ()
        self.options = options
        self.inputs = inputs
        self.index = index
        self.expected = expected
        self.size = size


class EngineStep:
    """A step as arrays, checked against its model once, as a front end does for requests that look alike.

    Raises:
        TargetError: the model does not take it.
    """

    __slots__ = ("_fit", "_index", "_inputs", "_keeps_outputs", "_names", "_parameters", "_size", "_step", "plain")

    def __init__(
        self,
        model: ServingModel,
        step: Step,
        index: int,
        parameters: Mapping[str, ParameterValue],
        *,
        keeps_outputs: bool = False,
    ) -> None:
        self._keeps_outputs = keeps_outputs
        given = [GivenInput(value.name, _datatype(value), value.shape) for value in step.inputs]
        try:
            self._fit, self._names = check_request(model.spec, given, [], "")
            self._inputs = {value.name: _array(value) for value in step.inputs}
        except NaiadError as error:
            raise TargetError(f"the model '{model.name}' does not take the input data: {error}") from None
        self._step = step
        self._index = index
        self._parameters = parameters
        self._size = sum(len(value.data) for value in step.inputs)
        self.plain = self._parts(0, 0)

    def in_sequence(self, sequence: int, *, is_first: bool, is_last: bool) -> EngineRequestParts:
        """The step as a request of a sequence."""
        return self._parts(sequence, SEQUENCE_START * is_first | SEQUENCE_END * is_last)

    def _parts(self, sequence: int, flags: int) -> EngineRequestParts:
        options = RequestOptions(
            self._names,
            self._fit.rows,
            self._fit.shape_key,
            self._parameters,
            flags=flags,
            correlation_id=sequence,
        )
        expected, size = self._step.expected, self._size
        return EngineRequestParts(options, self._inputs, self._index, expected, size, keeps_outputs=self._keeps_outputs)


def _datatype(value: TensorValue) -> DataType:
    found = BY_WIRE.get(value.datatype)
    if found is None:
        raise TargetError(f"the input '{value.name}' has the unknown datatype {value.datatype}")
    return found


def _array(value: TensorValue) -> Array:
    """The tensor as models get it from a front end: read-only, BYTES as objects."""
    datatype = _datatype(value)
    if datatype.is_bytes:
        count = int(np.prod(value.shape, dtype=np.int64))
        return decode_bytes(value.data, count, value.name).reshape(value.shape)
    return np.frombuffer(value.data, datatype.numpy).reshape(value.shape)

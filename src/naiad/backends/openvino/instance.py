"""Instances that run an OpenVINO infer request: one class for plain tensors, one for what needs more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.openvino.failures import reason
from naiad.backends.openvino.strings import string_array, string_tensor
from naiad.backends.shared.writable import CHEAP_COPY_BYTES, shareable
from naiad.errors import BackendError, InvalidArgumentError
from naiad.tensor.dtypes import BF16

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Array = np.ndarray[Any, Any]

# Begins OpenVINO's text when a shape does not fit; the server has checked the datatype.
_OTHER_SHAPE: Final = "Can't set the input tensor"


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """How the tensors of a model are passed; the same for all its instances.

    Attributes:
        inputs: the place of each configured input among those of the model.
        outputs: likewise.
        shapes: what the model says of the inputs, for error texts.
        strings: tensors of BYTES.
        bfloat16: tensors of BF16.
        scalars: tensors without an axis that the configuration declares with ``dims: [ 1 ]``.
        rows: the rows that every run must have; 0 for any number.
        ragged: inputs that have no row for each item of a batch.
        pads: fill a batch that has fewer rows.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    shapes: Mapping[str, str]
    strings: frozenset[str] = frozenset()
    bfloat16: frozenset[str] = frozenset()
    scalars: frozenset[str] = frozenset()
    rows: int = 0
    ragged: frozenset[str] = frozenset()
    pads: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether all tensors are passed as they are."""
        return not (self.strings or self.bfloat16 or self.scalars or self.rows > 1)


class OpenVinoInstance(Instance):
    """Numeric tensors: large inputs share the memory of the arrays, outputs are arrays that own theirs."""

    def __init__(self, request: Any, plan: TensorPlan) -> None:
        import openvino

        self._tensor = openvino.Tensor
        self._request = request
        self._plan = plan
        # Small inputs are copied here: OpenVINO takes 20 us or more for an input at another address (measured).
        self._copies: dict[str, Array] = {}
        # A model that keeps state between runs begins anew in each: requests of different callers follow each other.
        self._has_state = bool(request.query_state())

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The wanted outputs.

        Raises:
            BackendError: the run failed, with OpenVINO's text.
            InvalidArgumentError: a shape is outside the ranges of the model.
        """
        places = self._plan.inputs
        # What is not set would still be that of the previous run.
        if len(inputs) != len(places):
            raise self._missing(inputs)
        request, copies = self._request, self._copies
        # A tensor refers to the memory without holding it, so what was copied must stay until the run has ended.
        held = []
        try:
            for name, array in inputs.items():
                copy = copies.get(name)
                if copy is not None and copy.shape == array.shape and copy.dtype == array.dtype:
                    copy[...] = array
                else:
                    held.append(self._set_input(name, array))
            if self._has_state:
                request.reset_state()
            values = request.infer().to_tuple()
        except Exception as error:
            raise self._failure(error, inputs) from error
        found = self._plan.outputs
        return {name: values[found[name]] for name in outputs}

    def close(self) -> None:
        """Release the infer request."""
        del self._request

    def _set_input(self, name: str, array: Array) -> Array:
        """Let the model read an input from other memory than before; returns its owner."""
        # Until the request has the new memory, nothing may be written to the old.
        self._copies.pop(name, None)
        is_small = array.nbytes <= CHEAP_COPY_BYTES
        memory = array.copy() if is_small else shareable(array)
        self._request.set_input_tensor(self._plan.inputs[name], self._tensor(memory, True))
        if is_small:
            self._copies[name] = memory
        return memory

    def _missing(self, inputs: Arrays) -> BackendError:
        lost = [name for name in self._plan.inputs if name not in inputs]
        return BackendError(f"openvino: the run has no input '{lost[0]}', and the model needs every one")

    def _failure(self, error: Exception, inputs: Arrays) -> BackendError | InvalidArgumentError:
        text = reason(error)
        if _OTHER_SHAPE not in text:
            return BackendError(f"openvino: {text}")
        shapes = self._plan.shapes
        both = ", ".join(f"'{n}' {_text(array)} where the model has {shapes[n]}" for n, array in inputs.items())
        return InvalidArgumentError(f"openvino: a shape of the inputs is outside the range of the model: {both}")


class AdaptingOpenVinoInstance(OpenVinoInstance):
    """Also BYTES, BF16, scalars, and batches that must have a fixed number of rows."""

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """As for plain tensors; ``BackendError`` also for a batch with too few rows."""
        plan = self._plan
        if len(inputs) != len(plan.inputs):
            raise self._missing(inputs)
        given = self._rows(inputs)
        request = self._request
        held = {name: self._to_model(name, array) for name, array in inputs.items()}
        try:
            for name, array in held.items():
                request.set_input_tensor(plan.inputs[name], self._tensor_of(name, array))
            if self._has_state:
                request.reset_state()
            # ``infer`` turns all outputs into arrays, which it cannot do with an empty one of strings.
            request.start_async()
            request.wait()
            return {
                name: self._from_model(name, request.get_output_tensor(plan.outputs[name]), given) for name in outputs
            }
        except Exception as error:
            raise self._failure(error, inputs) from error

    def _rows(self, inputs: Arrays) -> int:
        """The rows of a batch; 0 when the model takes any number."""
        plan = self._plan
        if plan.rows < 2:
            return 0
        given = next((len(array) for name, array in inputs.items() if name not in plan.ragged), plan.rows)
        if given != plan.rows and not plan.pads:
            raise BackendError(
                f"expected requests with batch size '{plan.rows}', got '{given}'... this error can be avoided by "
                f"setting 'ENABLE_BATCH_PADDING' parameter in model configuration to 'YES' at a performance cost."
            )
        return given

    def _to_model(self, name: str, array: Array) -> Array:
        plan = self._plan
        if plan.rows > 1 and name not in plan.ragged and len(array) != plan.rows:
            array = _padded(array, plan.rows)
        if name in plan.scalars:
            array = array.reshape(())
        if name in plan.strings:
            return array
        return shareable(array.view(np.uint16) if name in plan.bfloat16 else array)

    def _tensor_of(self, name: str, array: Array) -> Any:
        import openvino

        if name in self._plan.strings:
            return string_tensor(array)
        if name in self._plan.bfloat16:
            return self._tensor(array, array.shape, openvino.Type.bf16)
        return self._tensor(array, True)

    def _from_model(self, name: str, tensor: Any, rows: int) -> Array:
        plan = self._plan
        if name in plan.strings:
            array = string_array(tensor)
        else:
            # A copy: the next run writes to the same memory.
            array = np.array(tensor.data)
            if name in plan.bfloat16:
                array = array.view(BF16.numpy)
        if name in plan.scalars:
            array = array.reshape(1)
        return array[:rows] if rows and array.ndim and len(array) == plan.rows else array


def _padded(array: Array, rows: int) -> Array:
    """``rows`` rows: those of ``array``, then zeros or empty texts."""
    fill = b"" if array.dtype == np.object_ else 0
    more: Array = np.full((rows - len(array), *array.shape[1:]), fill, array.dtype)
    return np.concatenate([array, more])


def _text(array: Array) -> str:
    return "[" + ",".join(map(str, array.shape)) + "]"

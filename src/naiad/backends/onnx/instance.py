"""Instances that run an ONNX Runtime session: one class for plain tensors, two for tensors that numpy stores
differently.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.onnx.bound_outputs import BoundOutputs
from naiad.backends.shared.bytes_io import decode_strings, encode_strings
from naiad.errors import BackendError
from naiad.tensor.dtypes import BF16

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ONNX_BFLOAT16 = 16


class OnnxInstance(Instance):
    """Numeric tensors: they go in as they are and come out as arrays that own their memory, or lie in
    ``output_memory``.

    Args:
        bound: binds outputs to that memory; None if they are not to be bound.
    """

    def __init__(self, session: Any, options: Any, bound: BoundOutputs | None = None) -> None:
        self._run = session.run
        self._options = options
        self._bound_outputs = bound

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The wanted outputs; ``BackendError`` with ONNX Runtime's text when the run fails."""
        if self.output_memory is not None and self._bound_outputs is not None:
            arrays = self._bound_outputs.memory(inputs, outputs, self.output_memory)
            if arrays is not None:
                return self._run_bound(self._bound_outputs, inputs, arrays)
        return self._run_plainly(inputs, outputs)

    def close(self) -> None:
        """Release the session."""
        # The bound method refers to the session.
        del self._run
        self._bound_outputs = None

    def _run_bound(self, bound: BoundOutputs, inputs: Arrays, arrays: Arrays) -> Arrays:
        try:
            bound.run(inputs, arrays, self._options)
        except Exception:
            # It says why it fails, unless an output only is not what the graph promises.
            results = self._run_plainly(inputs, list(arrays))
            bound.is_used = False
            return results
        return arrays

    def _run_plainly(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        try:
            return dict(zip(outputs, self._run(outputs, inputs, self._options), strict=True))
        except Exception as error:
            raise failure(error) from error


class AdaptingInstance(OnnxInstance):
    """Also BYTES, which the framework holds as str, and scalars, whose dims in a configuration are all 1."""

    def __init__(
        self, session: Any, options: Any, strings: frozenset[str], scalars: Mapping[str, tuple[int, ...]]
    ) -> None:
        super().__init__(session, options)
        self._strings = strings
        self._scalars = scalars

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """As for plain tensors; ``InvalidArgumentError`` for a BYTES element that is not UTF-8."""
        results = super().execute({name: self._to_model(name, array) for name, array in inputs.items()}, outputs)
        return {name: self._from_model(name, array) for name, array in results.items()}

    def _to_model(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if name in self._scalars:
            array = array.reshape(())
        return decode_strings(array, name) if name in self._strings else array

    def _from_model(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if name in self._scalars and np.ndim(array) == 0:
            array = np.reshape(array, self._scalars[name])
        return encode_strings(array) if name in self._strings else array


class BFloat16Instance(Instance):
    """An instance of a model with BF16 tensors, which the framework exchanges only as ``OrtValue``. BF16 outputs are
    copied.
    """

    def __init__(self, session: Any, options: Any, bfloat16: frozenset[str], plain: AdaptingInstance) -> None:
        import onnxruntime

        self._session = session
        self._options = options
        self._bfloat16 = bfloat16
        self._plain = plain
        self._wrap = onnxruntime.OrtValue.ortvalue_from_numpy
        self._wrap_as = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The wanted outputs; ``BackendError`` with ONNX Runtime's text when the run fails."""
        adapted = {name: self._to_model(name, array) for name, array in inputs.items()}
        try:
            values = {name: self._value(name, array) for name, array in adapted.items()}
            results = self._session.run_with_ort_values(outputs, values, self._options)
            arrays = {name: self._array(name, value) for name, value in zip(outputs, results, strict=True)}
        except Exception as error:
            raise failure(error) from error
        return {name: self._plain._from_model(name, array) for name, array in arrays.items()}

    def close(self) -> None:
        """Release the session."""
        del self._session
        self._plain.close()

    def _to_model(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        # An OrtValue of a foreign type ignores strides: the memory must be contiguous. The reshape is for scalars,
        # of which ``ascontiguousarray`` makes vectors.
        array = self._plain._to_model(name, array)
        return np.ascontiguousarray(array).reshape(array.shape).view(np.uint16) if name in self._bfloat16 else array

    def _value(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        return self._wrap_as(array, _ONNX_BFLOAT16) if name in self._bfloat16 else self._wrap(array)

    def _array(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        if name not in self._bfloat16:
            array: np.ndarray[Any, Any] = value.numpy()
            return array
        size = value.tensor_size_in_bytes()
        # An empty tensor need not have an address.
        if not size:
            return np.empty(value.shape(), BF16.numpy)
        memory = (ctypes.c_uint16 * (size // 2)).from_address(value.data_ptr())
        # A copy, since the memory goes with the OrtValue.
        copied: np.ndarray[Any, Any] = np.array(memory, np.uint16).view(BF16.numpy)
        return copied.reshape(value.shape())


def supports_bfloat16() -> bool:
    """Whether the installed framework lets Python pass BF16 tensors."""
    import onnxruntime

    return hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type")


def failure(error: Exception) -> BackendError:
    """The error of a run that failed, with ONNX Runtime's text."""
    return BackendError(f"onnxruntime: {str(error).strip() or type(error).__name__}")

"""One copy of a bound function: its state, and calls with tensors in and tensors out."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from naiad.binding.function import BoundFunction
from naiad.binding.tensor_types import VARIABLE, TensorType
from naiad.errors import BackendError

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

DEVICE: Final = "cpu"
"""What ``setup`` gets."""


class FunctionCall:
    """Calls a bound function. A class is instantiated here, and set up: each copy has a state of its own."""

    def __init__(self, bound: BoundFunction) -> None:
        self._model = bound.model
        self._signature = bound.signature
        self._inputs = bound.signature.inputs
        self._outputs = bound.signature.outputs
        self._single = next(iter(self._outputs)) if len(self._outputs) == 1 else ""
        self._has_scalars = any(i.scalar is not None for i in self._inputs.values())
        self._rows = bound.batching is not None
        self._owner: Any = bound.target() if inspect.isclass(bound.target) else bound.target
        if callable(setup := getattr(self._owner, "setup", None)) and callable(getattr(self._owner, "predict", None)):
            setup(*[DEVICE] * min(1, len(inspect.signature(setup).parameters)))
        self._function: Any = getattr(self._owner, "predict", self._owner)

    def close(self) -> None:
        """Call ``teardown`` of an object that has it."""
        teardown = getattr(self._owner, "teardown", None)
        if callable(teardown) and self._function is not self._owner:
            teardown()

    # Calls

    def plain(self, inputs: Arrays) -> dict[str, Array]:
        """The outputs of a plain function."""
        return self._results(self._call(inputs), inputs)

    async def coroutine(self, inputs: Arrays) -> dict[str, Array]:
        """The outputs of a coroutine."""
        return self._results(await self._call(inputs), inputs)

    def generator(self, inputs: Arrays) -> Generator[Arrays, None, None]:
        """The outputs that a generator yields, one by one."""
        for result in self._call(inputs):
            yield self._results(result, inputs)

    async def async_generator(self, inputs: Arrays) -> AsyncGenerator[Arrays, None]:
        """The outputs that an asynchronous generator yields, one by one."""
        async for result in self._call(inputs):
            yield self._results(result, inputs)

    def _call(self, inputs: Arrays) -> Any:
        given = self._with_scalars(inputs) if self._has_scalars else inputs
        if self._signature.by_name:
            return self._function(**given)
        return self._function(*(given[name] for name in self._inputs if name in given))

    def _with_scalars(self, inputs: Arrays) -> dict[str, Any]:
        given: dict[str, Any] = dict(inputs)
        for name, array in inputs.items():
            kind = self._inputs[name].scalar
            if kind is not None and not self._rows:
                value = array.reshape(-1)[0]
                given[name] = value.decode() if kind is str else kind(value)
        return given

    # Results

    def _results(self, result: Any, inputs: Arrays) -> dict[str, Array]:
        rows = len(next(iter(inputs.values()))) if self._rows else None
        found = self._named(result)
        return {name: self._output(name, kind, found[name], rows) for name, kind in self._outputs.items()}

    def _named(self, result: Any) -> Mapping[str, Any]:
        names = list(self._outputs)
        if result is None and names:
            raise self._wrong(f"returned None, expected the outputs {names}: a path through it has no return")
        if isinstance(result, Mapping):
            if set(result) != set(names):
                raise self._wrong(f"returned the outputs {sorted(result)}, expected {names}")
            return result
        if self._single:
            return {self._single: result}
        if not isinstance(result, Sequence) or len(result) != len(names):
            count = f"{len(result)} values" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
            raise self._wrong(f"returned {count}, expected a tuple or a dict with the outputs {names}")
        return dict(zip(names, result, strict=True))

    def _output(self, name: str, kind: TensorType, value: Any, rows: int | None) -> Array:
        array = _bytes_array(value) if kind.datatype == "BYTES" else np.asarray(value)
        dtype = kind.data_type.numpy
        if array.dtype != dtype:
            if kind.datatype != "BYTES" and not _may_cast(array, dtype):
                raise self._wrong(
                    f"returned {array.dtype.name} for the output '{name}', expected {kind.datatype}: convert the "
                    "result with astype, or declare its type with outputs={...} or a return annotation"
                )
            array = array.astype(dtype)
        if array.ndim == 0 and rows is None and len(kind.dims) == 1:
            # A plain number stands for a vector of one.
            array = array.reshape(1)
        expected = kind.dims if rows is None else (rows, *kind.dims)
        if not _fits(array.shape, expected):
            raise self._wrong(
                f"returned shape {list(array.shape)} for the output '{name}', expected {list(expected)}: return that "
                "shape, or declare another one with outputs={...} or a return annotation"
            )
        return array

    def _wrong(self, text: str) -> BackendError:
        return BackendError(f"the function of model '{self._model}' {text}")


def _fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(e in (VARIABLE, s) for s, e in zip(shape, expected, strict=True))


def _may_cast(array: Array, dtype: Any) -> bool:
    # Python's numbers have no size of their own, so 2 may be an FP32; an array of FP64 may lose precision, not range.
    return np.can_cast(array.dtype, dtype, "same_kind") or (array.dtype.kind in "biu" and np.dtype(dtype).kind == "f")


def _bytes_array(value: Any) -> Array:
    """Strings as the elements of BYTES: ``str`` becomes UTF-8."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value, dtype=object)
    flat = array.reshape(-1).tolist()
    if array.dtype.kind == "O" and all(type(v) is bytes for v in flat):
        return array
    if wrong := next((v for v in flat if not isinstance(v, str | bytes)), None):
        raise BackendError(f"a function returned {type(wrong).__name__} for an output of BYTES, expected str or bytes")
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = [v.encode() if isinstance(v, str) else v for v in flat]
    return made

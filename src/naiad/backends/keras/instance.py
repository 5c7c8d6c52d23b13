"""Running a Keras model."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.keras.session import on_processor, reason_of
from naiad.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.backends.keras.signature import CallShape


_LARGE_BYTES: Final = 1 << 20
"""Inputs of this size are collected after each run, a thousandth of a second in which no other thread runs Python."""


class KerasInstance(Instance):
    """One model, used by one thread: Keras does not say that a model may be run by several.

    It runs on copies of its inputs. A run leaves them to the garbage collector, and the memory of the server or of a
    process must not wait for that.
    """

    def __init__(self, keras: Any, model: Any, shape: CallShape) -> None:
        self._keras = keras
        self._model = model
        self._shape = shape
        self._run = _run_on_torch if keras.backend.backend() == "torch" else _run

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The wanted outputs; ``BackendError`` with Keras' text when the run fails."""
        tree, shape = self._keras.tree, self._shape
        try:
            given = [np.array(inputs[name]) for name in shape.inputs]
            argument = _filled(shape.structure, given)
            with on_processor(self._keras):
                returned = tree.flatten(self._run(self._model, argument))
        except Exception as error:
            raise BackendError(f"keras: {reason_of(error)}") from error
        if sum(array.nbytes for array in given) >= _LARGE_BYTES:
            gc.collect(1)
        found = dict(zip(shape.outputs, returned, strict=True))
        return {name: found[name] for name in outputs}

    def close(self) -> None:
        """Release the model and the memory of its weights."""
        library = self._keras.backend.backend()
        if library == "torch":
            _empty(self._model)
        elif library == "jax":
            for variable in self._model.variables:
                variable.value.delete()
        del self._model
        # The layers refer to each other, and the next full collection may be tens of loads away. This one takes about a
        # hundredth of a second, much less than a load.
        if library != "torch":
            gc.collect()


def _filled(structure: Any, given: Sequence[Any]) -> Any:
    """A structure with arrays in the places of their numbers.

    Keras has a function for it, which leaves the arrays to the garbage collector.
    """
    if isinstance(structure, int):
        return given[structure]
    if isinstance(structure, dict):
        return {name: _filled(part, given) for name, part in structure.items()}
    return [_filled(part, given) for part in structure]


def _run(model: Any, argument: Any) -> Any:
    return model.predict_on_batch(argument)


def _run_on_torch(model: Any, argument: Any) -> Any:
    """The same without Keras' own way from torch to numpy, which copies and which numpy has deprecated."""
    import keras
    import torch

    with torch.no_grad():
        returned = model(argument, training=False)
    return keras.tree.map_structure(_array, returned)


def _empty(model: Any) -> None:
    """Free the weights: the model itself waits for the garbage collector."""
    import torch

    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = torch.empty(0)


def _array(tensor: Any) -> Any:
    # Numpy's own types lack BF16, which Keras converts.
    if str(tensor.dtype) == "torch.bfloat16":
        import keras

        return keras.ops.convert_to_numpy(tensor)
    return tensor.detach().numpy()

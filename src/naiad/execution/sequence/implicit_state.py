"""Implicit state: outputs of one request of a sequence that the model gets as inputs of the next one.

Source: ``state`` of ``sequence_batching`` in the model configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from naiad.config.spec import ModelSpec, StateSpec
from naiad.errors import BackendError
from naiad.request import Array
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_NUMPY

_KEEP_BYTES: Final = 1 << 16
"""Larger states stay views of the batch's outputs. Smaller ones are copied, so that the outputs can be freed."""


class ImplicitStates:
    """The states of one model. False for a model without any.

    Attributes:
        initial: the states of the first request of a sequence, by the names of the inputs.
    """

    def __init__(self, spec: ModelSpec, states: Sequence[StateSpec]) -> None:
        self._model = spec.name
        self._states = tuple(states)
        self._lead = (1,) if spec.max_batch_size else ()
        self._varies = any(-1 in state.input.dims for state in states)
        self._outputs = tuple(state.output.name for state in states)
        self.initial: Mapping[str, Array] = {state.input.name: self._initial(state) for state in states}

    def __bool__(self) -> bool:
        return bool(self._states)

    def _initial(self, state: StateSpec) -> Array:
        dtype, shape = state.input.dtype, (*self._lead, *state.initial_dims)
        elements = int(np.prod(state.initial_dims, dtype=np.int64))
        if state.initial is None:
            made = np.full(shape, b"", np.object_) if dtype.is_bytes else np.zeros(shape, dtype.numpy)
        elif dtype.is_bytes:
            made = decode_bytes(state.initial, elements, f"the initial state of '{state.input.name}'").reshape(shape)
        else:
            made = np.frombuffer(state.initial, dtype.numpy).reshape(shape)
        # One array serves the first requests of all sequences.
        made.flags.writeable = False
        return made

    def with_outputs(self, outputs: tuple[str, ...]) -> tuple[str, ...]:
        """The outputs that a client wants, followed by the states."""
        return outputs + tuple(name for name in self._outputs if name not in outputs)

    def shapes(self, states: Mapping[str, Array]) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of states, on which those of a batch depend; None where they never vary."""
        return tuple([array.shape for array in states.values()]) if self._varies else None

    def following(self, states: Mapping[str, Array], outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The states for the next request, from the outputs of one; a state that the model left out stays as it was.

        Raises:
            BackendError: one has another datatype or shape than the configuration says.
        """
        # A copy, since ``initial`` is shared by all sequences.
        found = dict(states)
        for state in self._states:
            array = outputs.get(state.output.name)
            if array is not None:
                self._check(state, array)
                found[state.input.name] = array if array.nbytes > _KEEP_BYTES else array.copy()
        return found

    def _check(self, state: StateSpec, array: Array) -> None:
        wanted = (*self._lead, *state.output.dims)
        fits = len(wanted) == array.ndim and all(w in (-1, d) for w, d in zip(wanted, array.shape, strict=True))
        if array.dtype == state.output.dtype.numpy and fits:
            return
        known = BY_NUMPY.get(array.dtype)
        raise BackendError(
            f"model '{self._model}' returned state '{state.output.name}' as {known.wire if known else array.dtype} "
            f"with shape {list(array.shape)}, but its configuration says {state.output.dtype.wire} with "
            f"{list(wanted)}"
        )

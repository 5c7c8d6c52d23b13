"""The backends ``sequence`` and ``dyna_sequence``, which add up the inputs of a sequence. For tests.

Source: the test backends of these names of the reference server.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backend_api.backend import Arrays, Backend, Instance
from naiad.backends.shared.parameters import ParameterReader
from naiad.errors import BackendError, ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.config.spec import InstanceGroupSpec, ModelSpec

_INPUT: Final = "INPUT"
_OUTPUT: Final = "OUTPUT"


class AccumulatingInstance(Instance):
    """Has a total for each row of its batches or, with ``by_id``, for each CORRID."""

    def __init__(self, delay_s: float, by_id: bool) -> None:
        self._delay_s = delay_s
        self._by_id = by_id
        self._totals: dict[Any, np.int32] = {}

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """The totals after this batch, each in every element of its row; rows that are not READY change nothing."""
        if self._delay_s:
            time.sleep(self._delay_s)
        given = inputs[_INPUT]
        rows = given.reshape(len(inputs["READY"]), -1)
        found = np.zeros_like(rows)
        with np.errstate(over="ignore"):
            for row, values in enumerate(rows):
                if inputs["READY"].ravel()[row]:
                    found[row] = self._add(inputs, row, np.sum(values, dtype=np.int32))
        return {_OUTPUT: found.reshape(given.shape)}

    def _add(self, inputs: Arrays, row: int, value: np.int32) -> np.int32:
        key = inputs["CORRID"].ravel()[row] if self._by_id else row
        starts = bool(inputs["START"].ravel()[row])
        total = value if starts else self._totals.get(key, np.int32(0)) + value
        if self._by_id and inputs["END"].ravel()[row]:
            # Sequences come with new ids without end, so a total goes with its sequence.
            self._totals.pop(key, None)
            return total + _number(key)
        self._totals[key] = total
        return total


def _number(key: Any) -> np.int32:
    """The number that ``dyna_sequence`` adds for a correlation id at the end of its sequence."""
    if isinstance(key, bytes):
        text = key.decode(errors="replace")
        if not (text.isascii() and text.isdigit()):
            raise BackendError(f"the CORRID '{text}' of a sequence that ends is no number")
        key = int(text) % 2**64
    return np.uint64(key).astype(np.int32)


class SequenceBackend(Backend):
    """Models with the controls START and READY, an INT32 vector INPUT, and an OUTPUT of the same shape.

    The parameter ``execute_delay_ms`` is the duration of every run.
    """

    _controls: tuple[str, ...] = ("START", "READY")
    _text = "'START' and 'READY' must be configured as the control inputs"
    _by_id = False
    _delay_s = 0.0

    def start(self, spec: ModelSpec) -> None:
        """Check that the model is one for this backend; ``ModelLoadError`` with the reference's text when not."""
        controls = () if spec.sequence is None else spec.sequence.controls
        if sorted(c.tensor.name for c in controls) != sorted(self._controls):
            raise ModelLoadError(self._text)
        _check_vector(spec, {c.tensor.name for c in controls})
        self._delay_s = ParameterReader(spec.name, spec.parameters).number("execute_delay_ms", 0.0) / 1000

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance without any sequence."""
        return AccumulatingInstance(self._delay_s, self._by_id)


class DynaSequenceBackend(SequenceBackend):
    """The same by correlation id, which is added to the total when a sequence ends."""

    _controls = ("START", "END", "READY", "CORRID")
    _text = "'START', 'END, 'READY' and 'CORRID' must be configured as the control inputs"
    _by_id = True

    def start(self, spec: ModelSpec) -> None:
        """Check the configuration, the datatype of CORRID included."""
        super().start(spec)
        if spec.inputs["CORRID"].dtype.wire not in ("UINT64", "BYTES"):
            raise ModelLoadError("model CORRID control input must have TYPE_UINT64 or TYPE_STRING data-type")


def _check_vector(spec: ModelSpec, controls: set[str]) -> None:
    inputs = [t for t in spec.inputs.values() if t.name not in controls]
    if len(inputs) != 1 or len(inputs[0].dims) != 1:
        raise ModelLoadError("model must have one input 'INPUT' with vector shape, any length")
    if inputs[0].name != _INPUT:
        raise ModelLoadError("model input must be named 'INPUT'")
    if inputs[0].dtype.wire != "INT32":
        raise ModelLoadError("model input must have TYPE_INT32 data-type")
    outputs = list(spec.outputs.values())
    if len(outputs) != 1 or outputs[0].dims != inputs[0].dims:
        raise ModelLoadError("model must have output 'OUTPUT' with shape matching 'INPUT'")
    if outputs[0].name != _OUTPUT:
        raise ModelLoadError("model output must be named 'OUTPUT'")
    if outputs[0].dtype.wire != "INT32":
        raise ModelLoadError("model output must have TYPE_INT32 data-type")

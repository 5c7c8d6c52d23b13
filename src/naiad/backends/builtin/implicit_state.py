"""The backend ``implicit_state``: allowed and forbidden uses of implicit state. For tests.

Source: the test backend of this name of the reference server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from naiad.backend_api.backend import Arrays, Backend, Instance
from naiad.errors import BackendError, InvalidArgumentError, ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.config.spec import InstanceGroupSpec, ModelSpec

_UNKNOWN_STATE: Final = 0
_NO_UPDATE: Final = 1
_ONE_BUFFER: Final = 2
_CONTROLS: Final = ("START", "END", "READY")


class ImplicitStateInstance(Instance):
    """Uses its state in the way that the input TEST_CASE selects.

    0 requests a state that is not configured; 1 and 2 add INPUT to the state INPUT_STATE without changing it; 3
    requests GPU memory.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._model = spec.name
        states = () if spec.sequence is None else spec.sequence.states
        self._states = {state.input.name: state.output.name for state in states}

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """OUTPUT and the unchanged states; InvalidArgumentError or BackendError in the cases of errors."""
        for case in inputs["TEST_CASE"].ravel().tolist():
            self._check(case)
        states = {made: inputs[given] for given, made in self._states.items()}
        return {"OUTPUT": inputs["INPUT"] + inputs["INPUT_STATE"], **states}

    def _check(self, case: int) -> None:
        if case == _UNKNOWN_STATE:
            if not self._states:
                raise InvalidArgumentError(
                    f"unable to add state 'undefined_state'. State configuration is missing for model '{self._model}'."
                )
            raise InvalidArgumentError("state 'undefined_state' is not a valid state name.")
        if case not in (_NO_UPDATE, _ONE_BUFFER):
            raise BackendError("growable memory should always provide memory in GPU")
        if "INPUT_STATE" not in self._states:
            raise BackendError(f"model '{self._model}' has no state 'INPUT_STATE'")


class ImplicitStateBackend(Backend):
    """Models with the controls START, END and READY and the INT32 inputs INPUT and TEST_CASE."""

    _spec: ModelSpec

    def start(self, spec: ModelSpec) -> None:
        """Check that the model is one for this backend; ``ModelLoadError`` with the reference's text when not."""
        controls = () if spec.sequence is None else spec.sequence.controls
        if sorted(c.tensor.name for c in controls) != sorted(_CONTROLS):
            raise ModelLoadError("'START', 'END, and 'READY' must be configured as the control inputs")
        for name in ("INPUT", "TEST_CASE"):
            if name not in spec.inputs or spec.inputs[name].dtype.wire != "INT32":
                raise ModelLoadError(f"model '{spec.name}' must have the input '{name}' of TYPE_INT32")
        if "OUTPUT" not in spec.outputs:
            raise ModelLoadError(f"model '{spec.name}' must have the output 'OUTPUT'")
        self._spec = spec

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance, which is stateless."""
        return ImplicitStateInstance(self._spec)

"""The backend ``square``: sends as many responses as its input's value, each with that value. For tests.

Source: the reference's square backend. Parameters of the model, all of them optional: ``CUSTOM_INFER_DELAY_NS`` and
``CUSTOM_OUTPUT_DELAY_NS`` are the durations of each response; of the responses to a request the last
``CUSTOM_EMPTY_COUNT`` are empty, and the ``CUSTOM_FAIL_COUNT`` before them fail; ``CUSTOM_CANCEL_DELAY_NS`` is the time
to abandon a cancelled request. Cancellation is checked between two responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from naiad.backend_api.decoupled import DecoupledBackend, DecoupledInstance, Delay
from naiad.backends.builtin.signature_check import Expected, check_signature
from naiad.backends.shared.parameters import ParameterReader
from naiad.errors import CancelledError, InvalidArgumentError, UnknownError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from naiad.backend_api.backend import Arrays
    from naiad.backend_api.decoupled import Requester, Step
    from naiad.config.spec import InstanceGroupSpec, ModelSpec

_NS_PER_S = 1_000_000_000


class SquareInstance(DecoupledInstance):
    """Sends n responses to the request n; see the module. Times are in seconds."""

    def __init__(self, infer_s: float, output_s: float, cancel_s: float, failing: int, empty: int) -> None:
        self._waits = [
            wait
            for wait in (Delay(infer_s, can_be_cut=False), Delay(output_s, writes=True, can_be_cut=False))
            if wait.seconds
        ]
        self._infer_s = infer_s
        self._cancel_s = cancel_s
        self._failing = failing
        self._empty = empty

    def steps(self, inputs: Arrays, outputs: Sequence[str], requester: Requester) -> Iterator[Step]:
        """The responses; an error for a number that none can be."""
        given = inputs["IN"]
        if given.size != 1:
            raise InvalidArgumentError("unexpected shape for IN input")
        count = int(given.reshape(-1)[0])
        if count < 0:
            raise InvalidArgumentError(f"IN says how many responses are wanted: found {count}, expected 0 or more")
        answer = np.array(count, np.int32).reshape(given.shape)
        response = dict.fromkeys(outputs, answer)
        first_failing, first_empty = count - self._failing - self._empty, count - self._empty
        for index in range(count):
            if requester.is_cancelled:
                yield Delay(self._cancel_s, can_be_cut=False)
                yield CancelledError("cancelled")
                return
            if index < first_empty:
                yield from self._waits
                yield response if index < first_failing else UnknownError("simulated failure")
            else:
                yield Delay(self._infer_s, can_be_cut=False)
                yield None


class SquareBackend(DecoupledBackend):
    """Needs no model file."""

    def start(self, spec: ModelSpec) -> None:
        """Check the configuration; ``ModelLoadError`` when it has not the tensors, or a parameter is no number."""
        check_signature(spec, (Expected("IN", "INT32", (1,)),), (Expected("OUT", "INT32", (1,)),))
        reader = ParameterReader(spec.name, spec.parameters)
        infer, output, cancel = (
            reader.integer(f"CUSTOM_{what}_DELAY_NS", 0) / _NS_PER_S for what in ("INFER", "OUTPUT", "CANCEL")
        )
        self._times = infer, output, cancel
        self._failing = reader.integer("CUSTOM_FAIL_COUNT", 0)
        self._empty = reader.integer("CUSTOM_EMPTY_COUNT", 0)

    def create_decoupled(self, group: InstanceGroupSpec, index: int) -> DecoupledInstance:
        """An instance; all are the same."""
        return SquareInstance(*self._times, self._failing, self._empty)

"""The requests of sequences as a model sees them: with controls and the states of their sequences.

Source: ``control_input`` and ``state`` of ``sequence_batching`` in the model configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from naiad.bounded_dict import BoundedDict
from naiad.config.spec import ControlSpec, ModelSpec, SequenceSpec
from naiad.errors import InvalidArgumentError, NaiadError
from naiad.execution.batching.step_row import SequenceRow, StepFacts
from naiad.execution.sequence.implicit_state import ImplicitStates
from naiad.execution.sequence.step_schema import FactMaker
from naiad.request import (
    SEQUENCE_END,
    SEQUENCE_START,
    Array,
    BatchTimes,
    InferRequest,
    Outputs,
    RequestOptions,
    request_label,
)
from naiad.scheduling.sequence.slots import Sequence, SequenceState
from naiad.tensor.dtypes import DataType

_FLAGS: Final = SEQUENCE_START | SEQUENCE_END
_MAX_EMPTY_OPTIONS: Final = 64


class SequenceMemory(SequenceState):
    """The state of the server for one sequence.

    Attributes:
        correlation: the value of its CORRID control.
        states: of its next request, by the names of the inputs.
        options, facts: of its last step, made of ``given``, the options of the request, and the ``shapes`` of its
            states; most steps have the same.
    """

    __slots__ = ("correlation", "facts", "given", "options", "shapes", "states")

    def __init__(self) -> None:
        self.correlation: Array | None = None
        self.states: Mapping[str, Array] = {}
        self.given: RequestOptions | None = None
        self.shapes: object = None
        self.options: RequestOptions | None = None
        self.facts: StepFacts | None = None


class SequenceRequest(SequenceRow):
    """One request of a sequence with its controls and states; its responses go to ``original``.

    Attributes:
        original: the request as it came.
        correlation_id: as the model gets it.
        sequence: its sequence, once it is queued.
        sequence_memory: that of the sequence, once it ``is_made``.
        is_made: it has its controls and states.
        is_again: the model released it to be run once more.
        failure: the error that replaces the outputs of the model.
    """

    __slots__ = (
        "correlation_id",
        "failure",
        "is_again",
        "is_made",
        "is_stateful",
        "original",
        "sequence",
        "sequence_memory",
    )
    sequence_memory: SequenceMemory
    sequence: Sequence

    def __init__(self, original: InferRequest, options: RequestOptions, correlation_id: int | str) -> None:
        # Not super().__init__(): the bytes of the original have been counted.
        self.original = original
        self.options = options
        self.inputs = original.inputs
        self.id = original.id
        self.received_ns = original.received_ns
        self.queued_ns = original.queued_ns
        self.held_bytes = original.held_bytes
        self.correlation_id = correlation_id
        self.is_made = self.is_again = False
        self.is_stateful = False
        self.facts = None
        self.failure: NaiadError | None = None

    @property
    def origin(self) -> InferRequest:
        return self.original

    def headers(self) -> Mapping[str, str]:
        return self.original.headers()

    def joined(self, batch: BatchTimes) -> None:
        self.original.joined(batch)

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Respond to the original."""
        if self.failure is not None:
            outputs, error = {}, self.failure
        self.original.respond(self._public(outputs) if self.is_stateful else outputs, error)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Pass one response of a decoupled model on."""
        if self.is_stateful and outputs is not None:
            outputs = self._public(outputs)
        self.original.respond_part(outputs, error, final)

    def _public(self, outputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The outputs that the caller wants, without further states."""
        found = {name: outputs[name] for name in self.original.options.outputs if name in outputs}
        return Outputs(found, outputs.parameters) if isinstance(outputs, Outputs) else found


class EmptyRow(SequenceRow):
    """The row of a slot without a request. It has no caller, and is not counted."""

    __slots__ = ()

    def __init__(
        self, options: RequestOptions, inputs: Mapping[str, Array], now_ns: int, facts: StepFacts | None = None
    ) -> None:
        self.options = options
        self.inputs = inputs
        self.facts = facts
        self.id = ""
        self.received_ns = self.queued_ns = now_ns
        self.held_bytes = 0

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        return

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        return


class SequenceRequestFactory:
    """Makes steps of the requests to one model. Belongs to the event loop."""

    def __init__(self, spec: ModelSpec, sequence: SequenceSpec) -> None:
        lead = (1, 1) if spec.max_batch_size else (1,)
        self.states = ImplicitStates(spec, sequence.states)
        self._iterative = sequence.iterative
        self._last_id = 0
        self._controls = [_controls(sequence, flags, True, lead) for flags in range(_FLAGS + 1)]
        self._correlation = _correlation(sequence)
        self._lead = lead
        self._empty_controls = _controls(sequence, 0, False, lead)
        if self._correlation is not None:
            name, dtype = self._correlation.tensor.name, self._correlation.tensor.dtype
            self._empty_controls[name] = np.full(lead, b"" if dtype.is_bytes else 0, dtype.numpy)
        self._facts = FactMaker(spec, self._empty_controls)
        self._empty_options: dict[object, tuple[RequestOptions, StepFacts | None]] = BoundedDict(_MAX_EMPTY_OPTIONS)

    def make(self, request: InferRequest) -> SequenceRequest:
        """The step of a request that is about to be queued.

        A request to an iterative model is a sequence of its own; those with one correlation id come one after another.
        """
        options = request.options
        if not self._iterative:
            return SequenceRequest(request, options, options.correlation_id)
        if not options.correlation_id:
            self._last_id += 1
        # No caller can have a negative number.
        key = options.correlation_id or -self._last_id
        own = RequestOptions(options.outputs, 1, options.shape_key, timeout_us=options.timeout_us, correlation_id=key)
        return SequenceRequest(request, own, options.correlation_id or self._last_id)

    def complete(self, step: SequenceRequest) -> None:
        """Give the next step of a sequence its controls and states."""
        sequence, request = step.sequence, step.original
        memory = sequence.memory
        # Nothing else sets it: it is None at the first step.
        if not isinstance(memory, SequenceMemory):
            memory = sequence.memory = SequenceMemory()
            if self._correlation is not None:
                memory.correlation = self._correlation_of(step.correlation_id, self._correlation.tensor.dtype)
        flags = request.options.flags & _FLAGS
        if self._iterative:
            # A reschedule continues what the first run has begun, so START is set in that one alone.
            flags = 0 if step.is_again else flags | SEQUENCE_START
        inputs = {**request.inputs, **self._controls[flags]}
        if memory.correlation is not None and self._correlation is not None:
            inputs[self._correlation.tensor.name] = memory.correlation
        if self.states:
            if flags & SEQUENCE_START or not memory.states:
                memory.states = self.states.initial
            inputs.update(memory.states)
            step.is_stateful = True
        step.inputs = inputs
        options = memory.options
        # By identity: most requests of a sequence share the options of one plan.
        if options is None or memory.given is not request.options or options.flags != flags or self.states:
            options = self._options(step, memory, flags)
        step.options = options
        step.facts = memory.facts
        step.sequence_memory = memory
        step.is_made = True

    def _options(self, step: SequenceRequest, memory: SequenceMemory, flags: int) -> RequestOptions:
        given = step.original.options
        shapes = self.states.shapes(memory.states)
        options = memory.options
        if options is None or memory.given is not given or (options.flags, memory.shapes) != (flags, shapes):
            memory.given, memory.shapes = given, shapes
            options = memory.options = RequestOptions(
                self.states.with_outputs(given.outputs),
                1,
                given.shape_key if shapes is None else (given.shape_key, shapes),
                given.parameters,
                given.priority,
                given.timeout_us,
                flags,
                step.correlation_id,
            )
            memory.facts = self._facts.find(options, step.inputs)
        return options

    def empty(self, like: SequenceRequest, now_ns: int) -> EmptyRow:
        """The row of an empty slot beside ``like``."""
        options = like.options
        key = options.outputs, options.shape_key
        found = self._empty_options.get(key)
        if found is None:
            own = RequestOptions(options.outputs, 1, options.shape_key)
            found = self._empty_options[key] = own, self._facts.find(own, self._empty_controls)
        # The inputs of ``like`` only fill the row: its READY control has the model ignore it.
        return EmptyRow(found[0], {**like.inputs, **self._empty_controls}, now_ns, found[1])

    def _correlation_of(self, correlation_id: int | str, dtype: DataType) -> Array:
        # The id is of the kind that the control takes, or, for a request that came without one, a number.
        if dtype.is_bytes:
            return np.full(self._lead, str(correlation_id).encode(errors="surrogatepass"), np.object_)
        return np.full(self._lead, int(correlation_id) % 2**64, np.uint64).astype(dtype.numpy)


def _controls(sequence: SequenceSpec, flags: int, ready: bool, lead: tuple[int, ...]) -> dict[str, Array]:
    """The controls other than CORRID for a request with ``flags``."""
    says = {"START": bool(flags & SEQUENCE_START), "END": bool(flags & SEQUENCE_END), "READY": ready}
    return {c.tensor.name: _control(c, says[c.kind], lead) for c in sequence.controls if c.kind in says}


def _control(control: ControlSpec, says: bool, lead: tuple[int, ...]) -> Array:
    made = np.full(lead, control.values[says], control.tensor.dtype.numpy)
    # One array serves all requests with these flags.
    made.flags.writeable = False
    return made


# The type of correlation ids. Source: the check of the reference server (``ValidateCorrelationId``).


def correlation_is_text(sequence: SequenceSpec) -> bool | None:
    """Whether ids are texts (True) or numbers (False); None for a model without that control."""
    control = _correlation(sequence)
    return None if control is None else control.tensor.dtype.is_bytes


def wrong_id_type(model: str, sequence: SequenceSpec, request: InferRequest) -> InvalidArgumentError:
    """The error for a request whose id has the type that the model's control does not take."""
    control = _correlation(sequence)
    name, expected = ("", "") if control is None else (control.tensor.name, control.tensor.dtype.wire)
    found = "BYTES" if isinstance(request.options.correlation_id, str) else "UINT64"
    return InvalidArgumentError(
        f"{request_label(request.id)}sequence batching control '{name}' data-type is '{found}', but model '{model}' "
        f"expects '{expected}'"
    )


def _correlation(sequence: SequenceSpec) -> ControlSpec | None:
    return next((control for control in sequence.controls if control.kind == "CORRID"), None)

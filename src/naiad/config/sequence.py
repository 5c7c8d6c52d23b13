"""The ``sequence_batching`` section, frozen: strategy, controls and states, and what a model sees of them.

Source: ``ModelSequenceBatching`` of the model configuration.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.config.instance_count import instance_count
from naiad.config.messages import enum_name
from naiad.config.spec import ControlSpec, ModelSpec, SequenceSpec, StateSpec, TensorSpec
from naiad.tensor.dtypes import BY_CONFIG

if TYPE_CHECKING:
    from naiad.config.problems import Origin
    from naiad.tensor.dtypes import DataType

INITIAL_STATES: Final = "initial_state"
"""The folder, in that of the model, where files with initial states lie."""
MAX_SLOTS: Final = 1 << 16
"""The most sequences that a model runs at a time, whatever the configuration says; the others wait."""
MAX_INITIAL_BYTES: Final = 1 << 30
_KIND: Final = "CONTROL_SEQUENCE_"
_VALUES: Final = (
    ("int32_false_true", "TYPE_INT32"),
    ("fp32_false_true", "TYPE_FP32"),
    ("bool_false_true", "TYPE_BOOL"),
)


def sequence_spec(config: Any) -> SequenceSpec | None:
    """The frozen section of ``config``, a valid ``ModelConfig``; None where it has none."""
    if not config.HasField("sequence_batching"):
        return None
    found = config.sequence_batching
    rows = max(1, int(config.max_batch_size))
    is_oldest = found.HasField("oldest")
    strategy = found.oldest if is_oldest else found.direct
    return SequenceSpec(
        oldest=is_oldest,
        slots=_slots(config, strategy.max_candidate_sequences if is_oldest else 0, rows),
        max_idle_ns=found.max_sequence_idle_microseconds * 1000,
        max_queue_delay_ns=strategy.max_queue_delay_microseconds * 1000,
        minimum_slot_utilization=0.0 if is_oldest else _as_written(strategy.minimum_slot_utilization),
        preferred_batch_sizes=tuple(sorted(set(strategy.preferred_batch_size))) if is_oldest else (),
        preserve_ordering=is_oldest and strategy.preserve_ordering,
        controls=tuple(_control(i.name, c, config) for i in found.control_input for c in i.control),
        states=tuple(_state(state, config) for state in found.state),
        iterative=found.iterative_sequence,
    )


def _as_written(value: float) -> float:
    """The number as written: 0.6 in 32 bits is a bit more, and 3 of 5 slots would not be enough."""
    return float(str(np.float32(value)))


def _slots(config: Any, candidates: int, rows: int) -> int:
    """The slots of each instance; ``MAX_SLOTS`` bounds those of all instances together."""
    instances = sum(instance_count(group) for group in config.instance_group)
    return max(1, min(int(candidates) if candidates > 0 else rows, MAX_SLOTS // max(1, instances)))


def _tensor(name: str, dtype: DataType, dims: tuple[int, ...], config: Any) -> TensorSpec:
    return TensorSpec(name, dtype, dims, (-1, *dims) if config.max_batch_size > 0 else dims)


def _control(name: str, control: Any, config: Any) -> ControlSpec:
    kind = enum_name(control, "kind").removeprefix(_KIND)
    for field, data_type in _VALUES:
        if values := tuple(getattr(control, field)):
            return ControlSpec(kind, _tensor(name, BY_CONFIG[data_type], (1,), config), values)
    return ControlSpec(kind, _tensor(name, BY_CONFIG[enum_name(control, "data_type")], (1,), config))


def _state(state: Any, config: Any) -> StateSpec:
    dtype, dims = BY_CONFIG[enum_name(state, "data_type")], tuple(state.dims)
    initial = state.initial_state[0] if state.initial_state else None
    return StateSpec(
        input=_tensor(state.input_name, dtype, dims, config),
        output=_tensor(state.output_name, dtype, dims, config),
        initial_dims=tuple(1 if dim < 0 else dim for dim in dims) if initial is None else tuple(initial.dims),
        initial_file="" if initial is None else initial.data_file,
    )


def run_spec(spec: ModelSpec) -> ModelSpec:
    """The specification for the instances of a model: its own tensors, its controls and its states.

    The specification itself for a model without sequences.
    """
    if spec.sequence is None:
        return spec
    controls = {control.tensor.name: control.tensor for control in spec.sequence.controls}
    states = {state.input.name: state.input for state in spec.sequence.states}
    # Callers may get the output of a state as well: then it is one of the model's own.
    outputs = {s.output.name: s.output for s in spec.sequence.states if s.output.name not in spec.outputs}
    return replace(spec, inputs={**spec.inputs, **controls, **states}, outputs={**spec.outputs, **outputs})


def with_initial_states(spec: ModelSpec, folder: Path, origin: Origin) -> ModelSpec:
    """``spec`` with the initial states that lie in files of the model's ``folder``.

    Raises:
        ConfigError: a file cannot be read, lies elsewhere, or has too few bytes.
    """
    sequence = spec.sequence
    if sequence is None or not any(state.initial_file for state in sequence.states):
        return spec
    states = tuple(
        replace(state, initial=_read(state, folder / INITIAL_STATES, origin, f"sequence_batching.state[{index}]"))
        for index, state in enumerate(sequence.states)
    )
    return replace(spec, sequence=replace(sequence, states=states))


def _read(state: StateSpec, folder: Path, origin: Origin, place: str) -> bytes | None:
    if not state.initial_file:
        return None
    name, at = state.initial_file, f"{place}.initial_state[0].data_file"
    file = folder / name
    # The configuration may come with a request to load the model: it must not show other files of this machine.
    if not file.resolve().is_relative_to(folder.resolve()):
        raise origin.error(f"initial state '{name}' lies outside the model's folder '{INITIAL_STATES}'", at)
    try:
        # A pipe would keep the load waiting for a writer.
        if not file.is_file():
            raise FileNotFoundError(2, "No such file or directory")
        if file.stat().st_size > MAX_INITIAL_BYTES:
            raise origin.error(f"initial state '{name}' has more than {MAX_INITIAL_BYTES} bytes", at)
        content = file.read_bytes()
    except OSError as error:
        raise origin.error(f"failed to read initial state '{name}' in {folder}: {error.strerror}", at) from None
    dtype, elements = state.input.dtype, 1
    for dim in state.initial_dims:
        elements *= dim
    if dtype.is_bytes:
        # Elements of BYTES have lengths of their own: whoever makes the tensor checks them.
        return content
    if len(content) < elements * dtype.itemsize:
        raise origin.error(
            f"the initial_state of state '{state.input.name}' expects {elements * dtype.itemsize} bytes for dims "
            f"{list(state.initial_dims)}, but '{name}' has {len(content)} bytes",
            at,
        )
    # As in the reference, what follows is passed over.
    return content[: elements * dtype.itemsize]

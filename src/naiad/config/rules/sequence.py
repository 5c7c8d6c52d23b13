"""Sequence batching: control inputs, strategy and state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.messages import enum_name
from naiad.config.problems import Violation
from naiad.tensor.dtypes import BY_CONFIG

_AT = "sequence_batching"
_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRELATION = "CONTROL_SEQUENCE_CORRID"
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def violations(config: Any) -> Iterator[Violation]:
    """Rules of the control inputs and the strategy of ``sequence_batching``."""
    if not config.HasField("sequence_batching"):
        return
    yield from _control_inputs(config)
    yield from _strategy(config)


def _control_inputs(config: Any) -> Iterator[Violation]:
    tensors: set[str] = set()
    kinds: set[str] = set()
    for index, tensor in enumerate(config.sequence_batching.control_input):
        path = f"{_AT}.control_input[{index}]"
        if not tensor.name:
            yield Violation(path, f"sequence batching control tensor must have a name for {config.name}")
        elif tensor.name in tensors:
            text = f"sequence batching control tensor '{tensor.name}' is specified for multiple control kinds"
            yield Violation(path, f"{text} for {config.name}")
        tensors.add(tensor.name)
        for position, control in enumerate(tensor.control):
            place = f"{path}.control[{position}]"
            kind = enum_name(control, "kind")
            if kind in kinds:
                yield Violation(place, f"sequence batching specifies multiple {kind} tensors for {config.name}")
            kinds.add(kind)
            yield from (Violation(place, message) for message in _control(control, kind, config.name))


def _control(control: Any, kind: str, model: str) -> Iterator[str]:
    given = [name for name in _VALUES if getattr(control, name)]
    either = f"'{_VALUES[0]}', '{_VALUES[1]}' or '{_VALUES[2]}'"
    if kind == _CORRELATION:
        if given:
            yield f"sequence batching must not specify either {either} for {kind} for {model}"
        if enum_name(control, "data_type") not in _CORRELATION_TYPES:
            allowed = ", ".join(_CORRELATION_TYPES[:-1]) + " and " + _CORRELATION_TYPES[-1]
            yield f"unexpected data type for control {kind} for {model}. Allowed data types are {allowed}"
        return
    if not given:
        yield f"sequence batching must specify either {either} for {kind} for {model}"
    if len(given) > 1:
        yield f"sequence batching specifies more than one from {either} for {kind} for {model}"
    for name in given:
        if len(getattr(control, name)) != 2:
            yield f"sequence batching control '{name}' must have exactly 2 entries for {kind} for {model}"


def _strategy(config: Any) -> Iterator[Violation]:
    sequence = config.sequence_batching
    if sequence.HasField("oldest"):
        for index, size in enumerate(sequence.oldest.preferred_batch_size):
            path = f"{_AT}.oldest.preferred_batch_size[{index}]"
            if size <= 0:
                message = f"sequence batching preferred batch size must be positive for {config.name}"
                yield Violation(path, message)
            elif size > config.max_batch_size:
                message = f"sequence batching preferred batch size must be <= max batch size for {config.name}"
                yield Violation(path, message)
    # 0.0 is what an unset field reads as; the reference's text leaves it out.
    if sequence.HasField("direct") and not 0.0 <= sequence.direct.minimum_slot_utilization <= 1.0:
        message = f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {config.name}"
        yield Violation(f"{_AT}.direct.minimum_slot_utilization", message)


def state_violations(config: Any) -> Iterator[Violation]:
    """Rules of the states of ``sequence_batching``."""
    seen: set[str] = set()
    for index, state in enumerate(config.sequence_batching.state):
        path = f"{_AT}.state[{index}]"
        for field in ("input_name", "output_name"):
            if not getattr(state, field):
                yield Violation(path, f"sequence batching state must specify '{field}' for {config.name}")
        if enum_name(state, "data_type") not in BY_CONFIG:
            shown = f"sequence batching state '{state.input_name}'"
            yield Violation(f"{path}.data_type", f"{shown} must specify 'data_type' for {config.name}")
        yield from (Violation(path, message) for message in _state(state))
        if state.input_name in seen:
            yield Violation(path, f"State input name '{state.input_name}' specified more than once.")
        seen.add(state.input_name)


def _state(state: Any) -> Iterator[str]:
    name, initial = state.input_name, state.initial_state
    if len(initial) > 1:
        yield (
            f"initial_state field for state input '{name}' must contain exactly one or zero element. "
            f"Found '{len(initial)}' elements."
        )
    if state.use_growable_memory and not state.use_same_buffer_for_input_output:
        yield (
            "In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input name "
            f"'{name}'."
        )
    for first in initial[:1]:
        yield from _initial_state(state, first)


def _initial_state(state: Any, initial: Any) -> Iterator[str]:
    name, dims, wanted = state.input_name, list(initial.dims), list(state.dims)
    if initial.data_type != state.data_type:
        yield f"The data type used for 'initial_state' field of state '{name}' does not match the state data type."
    if not initial.name:
        yield f"Field 'name' must be set when using initial_state for state input '{name}'."
    if initial.WhichOneof("state_data") is None:
        yield f"initial_state setting expects state '{name}' to have state_data set: zero_data or data_file"
    if -1 in dims:
        yield f"'initial_state' field for state input name '{name}' contains variable dimensions: {dims}"
    elif len(dims) != len(wanted):
        yield (
            f"Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input "
            f"'{name}'. {len(dims)} != {len(wanted)}"
        )
    else:
        differing = ((dim, want) for dim, want in zip(dims, wanted, strict=True) if want not in (-1, dim))
        for dim, want in differing:
            yield f"'initial_state' dim for input name '{name}' doesn't match 'state' dim description. {dim} != {want}"

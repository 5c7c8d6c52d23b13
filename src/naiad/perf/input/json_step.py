"""One step as JSON gives it: tensors by name, or the payload of another kind of service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from naiad.perf.input.error import PerfInputError
from naiad.perf.input.json_file import JsonStep
from naiad.perf.input.json_tensor import read_tensor
from naiad.perf.input.location import Location
from naiad.perf.input.shapes import Shapes
from naiad.perf.steps import ModelDescription, Step, TensorDescription, TensorValue
from naiad.wire.json_text import kind_of

_RESERVED: Final = frozenset({"model", "payload", "timestamp", "session_id", "delay"})


def read_step(given: JsonStep, model: ModelDescription, shapes: Shapes) -> Step:
    """A step of one row, without the batch dimension.

    Raises:
        PerfInputError: a tensor is missing, unknown, or not one that the model takes.
    """
    # An input may have one of the reserved names.
    reserved = _RESERVED - {tensor.name for tensor in model.inputs}
    extra = {key: value for key, value in given.value.items() if key in reserved}
    if "payload" not in extra:
        _check_complete(given, model)
    return Step(
        _tensors(given.value, model.inputs, shapes, given.where, reserved),
        _tensors(given.expected, model.outputs, {}, given.where),
        _time(extra, "timestamp", given.where),
        _payload(extra, given.where),
        _session(extra, given.where),
        _time(extra, "delay", given.where) or 0.0,
    )


def _tensors(
    values: dict[str, Any],
    tensors: Sequence[TensorDescription],
    shapes: Shapes,
    where: Location,
    reserved: frozenset[str] = frozenset(),
) -> tuple[TensorValue, ...]:
    for name in values.keys() - {tensor.name for tensor in tensors} - reserved:
        raise PerfInputError(
            f"The input or output '{name}' is not found in the model configuration {where}: expected "
            f"{', '.join(tensor.name for tensor in tensors) or 'payload'}"
        )
    return tuple(read_tensor(t, values[t.name], shapes, where) for t in tensors if t.name in values)


def _check_complete(given: JsonStep, model: ModelDescription) -> None:
    for tensor in model.inputs:
        if tensor.name not in given.value and not tensor.is_optional:
            raise PerfInputError(
                f"missing tensor {tensor.name} {given.where}: found {', '.join(given.value) or 'nothing'}, and it is "
                "not optional"
            )
    if not model.inputs and "payload" not in given.value:
        raise PerfInputError(f'missing "payload" {given.where}: found {", ".join(given.value) or "nothing"}')


def _only(value: Any, name: str, where: Location) -> Any:
    """A value that may stand in an array of its own, as the reference wants it."""
    if not isinstance(value, list):
        return value
    if len(value) != 1:
        raise PerfInputError(f'"{name}" has {len(value)} elements, expected 1 {where}')
    return value[0]


def _time(extra: dict[str, Any], name: str, where: Location) -> float | None:
    """A time in milliseconds; None where there is none."""
    if name not in extra:
        return None
    value = _only(extra[name], name, where)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise PerfInputError(f'"{name}" is {kind_of(value)}, expected milliseconds from 0 on {where}')
    return float(value)


def _session(extra: dict[str, Any], where: Location) -> str:
    value = _only(extra.get("session_id", ""), "session_id", where)
    if not isinstance(value, str) or ("session_id" in extra and not value):
        raise PerfInputError(f'"session_id" is {kind_of(value)}, expected a name {where}')
    return value


def _payload(extra: dict[str, Any], where: Location) -> bytes:
    if "payload" not in extra:
        return b""
    value = _only(extra["payload"], "payload", where)
    if not isinstance(value, dict):
        raise PerfInputError(f'"payload" is {kind_of(value)}, expected an object {where}')
    return orjson.dumps(value)

"""The binding of configured tensors to the arguments and return values of a TorchScript ``forward``.

Source: naming convention of the reference's pytorch backend. Inputs are matched by the names of the arguments, or by
``<name>__<index>``, or else in the order of the configuration; the convention holds for all inputs of a model at once.
Outputs are matched by ``<name>__<index>`` or in order. A dictionary of tensors is matched by its keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from naiad.config.spec import ModelSpec, TensorSpec

_INDEXED = re.compile(r"^.+__(\d+)$")
_DICTIONARY = re.compile(r"^Dict\[str, (Tensor|Optional\[Tensor\])\]$")
_TENSOR_TYPES = ("Tensor", "Optional[Tensor]")
_STRINGS = "List[str]"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of ``forward``; ``type_text`` is TorchScript's own name of its type."""

    name: str
    type_text: str
    has_default: bool


@dataclass(frozen=True, slots=True)
class ForwardSchema:
    """The arguments of ``forward`` without ``self``, and its return type. ``kind`` says where it was read."""

    arguments: tuple[Argument, ...]
    returns: str
    return_count: int | None
    text: str
    kind: str = "TorchScript"

    @property
    def takes_dictionary(self) -> bool:
        return len(self.arguments) == 1 and bool(_DICTIONARY.match(self.arguments[0].type_text))

    @property
    def returns_strings(self) -> bool:
        return self.returns == _STRINGS


def read_schema(module: Any) -> ForwardSchema:
    """The schema of a loaded ``ScriptModule``."""
    schema = module.forward.schema
    arguments = tuple(Argument(a.name, a.type.annotation_str, a.has_default_value()) for a in schema.arguments[1:])
    returned = schema.returns[0].type
    elements = returned.elements() if returned.kind() == "TupleType" else None
    count = len(elements) if elements is not None else 1 if returned.kind() == "TensorType" else None
    return ForwardSchema(arguments, returned.annotation_str, count, str(schema))


def bind_inputs(spec: ModelSpec, schema: ForwardSchema) -> tuple[tuple[str, Argument], ...]:
    """Pairs of a configured input and its argument, in the order of the arguments; empty for a dictionary.

    Raises:
        ModelLoadError: the inputs do not fit the arguments; the text shows both.
    """
    if schema.takes_dictionary:
        _check_dictionary(spec, schema)
        return ()
    names = list(spec.inputs)
    positions = _positions(names, [a.name for a in schema.arguments])
    _check_positions(spec, schema, names, positions)
    # In the order of the arguments, so that they can be passed by position.
    bound = sorted(zip(positions, names, strict=True))
    pairs = tuple((name, schema.arguments[position]) for position, name in bound)
    for name, argument in pairs:
        _check_type(spec, spec.inputs[name], argument)
    return pairs


def bind_outputs(spec: ModelSpec, schema: ForwardSchema) -> Mapping[str, int]:
    """The place of each output in the sequence that ``forward`` returns (a lone tensor is a sequence of one).

    Raises:
        ModelLoadError: ``forward`` is known to return fewer values.
    """
    names = list(spec.outputs)
    places = _indices(names) or list(range(len(names)))
    if schema.return_count is not None and max(places) >= schema.return_count:
        raise ModelLoadError(
            f"model '{spec.name}': forward returns {schema.returns}, {_values(schema.return_count)}; "
            f"the configuration has the outputs {_listed(names)}, the last at place {max(places)} counted from 0"
        )
    return dict(zip(names, places, strict=True))


def _check_dictionary(spec: ModelSpec, schema: ForwardSchema) -> None:
    strings = [t.name for t in spec.inputs.values() if t.dtype.is_bytes]
    if strings:
        raise ModelLoadError(
            f"model '{spec.name}': input '{strings[0]}' is TYPE_STRING, "
            f"but forward takes {schema.arguments[0].type_text}"
        )


def _positions(names: Sequence[str], arguments: Sequence[str]) -> list[int]:
    if all(name in arguments for name in names):
        return [arguments.index(name) for name in names]
    return _indices(names) or list(range(len(names)))


def _indices(names: Sequence[str]) -> list[int]:
    """The numbers of names that are all like ``INPUT__0``, else an empty list."""
    matches = [_INDEXED.match(name) for name in names]
    return [int(m[1]) for m in matches if m] if all(matches) else []


def _check_positions(spec: ModelSpec, schema: ForwardSchema, names: Sequence[str], positions: Sequence[int]) -> None:
    needed = {i for i, a in enumerate(schema.arguments) if not a.has_default}
    given = set(positions)
    if len(given) == len(positions) and given <= set(range(len(schema.arguments))) and needed <= given:
        return
    raise ModelLoadError(
        f"model '{spec.name}': the inputs {_listed(names)} of the configuration do not fit forward's arguments "
        f"({', '.join(f'{a.name}: {a.type_text}' for a in schema.arguments)}); name the inputs like the arguments "
        f"({_listed([a.name for a in schema.arguments])}), or {_listed([f'INPUT__{i}' for i in sorted(needed)])}"
    )


def _check_type(spec: ModelSpec, tensor: TensorSpec, argument: Argument) -> None:
    expected = (_STRINGS,) if tensor.dtype.is_bytes else _TENSOR_TYPES
    if argument.type_text not in expected:
        raise ModelLoadError(
            f"model '{spec.name}': input '{tensor.name}' is {tensor.dtype.config}, which is passed as {expected[0]}, "
            f"but forward's argument '{argument.name}' is {argument.type_text}"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{n}'" for n in names) or "none"


def _values(count: int) -> str:
    return "1 value" if count == 1 else f"{count} values"

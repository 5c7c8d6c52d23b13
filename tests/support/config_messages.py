"""Any message of the protocol, drawn by walking its descriptor."""

from __future__ import annotations

from typing import Any

from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from naiad.config.messages import is_repeated

_INTEGERS = {"INT32": (-(2**31), 2**31 - 1), "UINT32": (0, 2**32 - 1)}
_INTEGERS |= {"INT64": (-(2**63), 2**63 - 1), "UINT64": (0, 2**64 - 1)}
_CPP_TYPES = {1: "INT32", 2: "INT64", 3: "UINT32", 4: "UINT64", 5: "DOUBLE", 6: "FLOAT", 7: "BOOL", 8: "ENUM"}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=6)


@st.composite
def messages(draw: st.DrawFn, message_class: Any, depth: int = 0) -> Any:
    """A message with some of its fields set; at most one of each ``oneof``."""
    message = message_class()
    fields = list(message.DESCRIPTOR.fields)
    chosen = draw(st.lists(st.sampled_from(fields), max_size=4 if depth else 6, unique=True)) if fields else []
    taken: set[str] = set()
    for field in chosen:
        if field.containing_oneof is not None:
            if field.containing_oneof.name in taken:
                continue
            taken.add(field.containing_oneof.name)
        _set(draw, message, field, depth)
    return message


def _set(draw: st.DrawFn, message: Any, field: Any, depth: int) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        for name in draw(st.lists(_scalars(key), max_size=2, unique=True)):
            if value.message_type is None:
                target[name] = draw(_scalars(value))
            else:
                target[name].CopyFrom(draw(messages(GetMessageClass(value.message_type), depth + 1)))
    elif field.message_type is not None:
        _set_messages(draw, target, field, depth)
    elif is_repeated(field):
        target.extend(draw(st.lists(_scalars(field), max_size=3)))
    else:
        setattr(message, field.name, draw(_scalars(field)))


def _set_messages(draw: st.DrawFn, target: Any, field: Any, depth: int) -> None:
    one = messages(GetMessageClass(field.message_type), depth + 1)
    if is_repeated(field):
        target.extend(draw(st.lists(one, max_size=2)))
    else:
        target.CopyFrom(draw(one))
        target.SetInParent()


def _scalars(field: Any) -> st.SearchStrategy[Any]:
    kind = _CPP_TYPES.get(field.cpp_type, "STRING")
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        return st.integers(low, high)
    if kind == "ENUM":
        return st.sampled_from(sorted(field.enum_type.values_by_number))
    if kind == "BOOL":
        return st.booleans()
    if kind == "STRING":
        return _TEXT
    # Writers do not agree on a negative zero: it is the default by value, and not by its bits.
    return st.floats(width=32 if kind == "FLOAT" else 64, allow_nan=False).map(lambda value: value or 0.0)

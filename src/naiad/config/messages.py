"""The message classes of the protocol, built from ``protos/naiad.desc`` at their first use.

They live in a descriptor pool of their own, so that a process may also import another package that defines the same
``inference.*`` messages (a tritonclient, say) in protobuf's default pool.

Use: ``from naiad.config.messages import ModelConfig``. Any top-level message of ``protos/*.proto`` can be imported
like that; a new .proto file only needs ``scripts/compile-protos``.
"""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

PACKAGE = "inference"
_DESCRIPTOR_FILE = Path(__file__).resolve().parent.parent / "protos" / "naiad.desc"

# Two threads that make the same class at the same time would make two.
_holding = threading.Lock()
_held: dict[Any, Any] = {}


@cache
def pool() -> descriptor_pool.DescriptorPool:
    """The private pool with every message of the protocol."""
    files = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTOR_FILE.read_bytes())
    private = descriptor_pool.DescriptorPool()
    for file in files.file:
        private.Add(file)
    return private


@cache
def message_class(name: str, package: str = PACKAGE) -> Any:
    """The class of the message ``name``, such as ``ModelConfig`` or ``ModelWarmup.Input``.

    Raises:
        KeyError: there is no such message.
    """
    return held_class(pool().FindMessageTypeByName(f"{package}.{name}"))


def held_class(descriptor: Any) -> Any:
    """The class of the message ``descriptor``, which stays until the process ends, as do those of messages within it.

    protobuf makes the class of an inner message at its first use and refers to it weakly. The garbage collector lets
    other threads run while it collects such a class, and one that uses it then crashes (protobuf 6.33).
    """
    with _holding:
        if descriptor not in _held:
            _held.update((found, message_factory.GetMessageClass(found)) for found in _messages_within(descriptor))
    return _held[descriptor]


def _messages_within(descriptor: Any) -> set[Any]:
    """The descriptors of a message and of all messages within it."""
    found: set[Any] = set()
    waiting = [descriptor]
    while waiting:
        message = waiting.pop()
        if message not in found:
            found.add(message)
            waiting += [field.message_type for field in message.fields if field.message_type is not None]
    return found


@cache
def enum_type(name: str, package: str = PACKAGE) -> EnumTypeWrapper:
    """The enumeration ``name``, such as ``DataType`` or ``ModelInstanceGroup.Kind``, with ``Name`` and ``Value``.

    Raises:
        KeyError: there is no such enumeration.
    """
    return EnumTypeWrapper(pool().FindEnumTypeByName(f"{package}.{name}"))


def enum_name(message: Any, field: str) -> str:
    """The name of the value that an enumeration field of ``message`` holds; its number when it has no name."""
    number = getattr(message, field)
    value = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number.get(number)
    return str(number) if value is None else str(value.name)


@cache
def is_repeated(field: Any) -> bool:
    """True for a field (a ``FieldDescriptor``) that holds a list or a map."""
    # Protobuf 6.31 brought the property and deprecated the label, which older releases have alone.
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)


@cache
def field_names(message: str) -> frozenset[str]:
    """The names of all fields of the message called ``message`` and of the messages within it."""
    found = _messages_within(message_class(message).DESCRIPTOR)
    return frozenset(field.name for descriptor in found for field in descriptor.fields)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return message_class(name)
    except KeyError:
        raise AttributeError(f"the protocol has no message named {name!r}") from None

"""The messages of a TensorFlow graph, as far as a frozen network has them, so that writing one needs no TensorFlow.

Source: the fields of TensorFlow's ``graph.proto``, ``node_def.proto``, ``attr_value.proto``, ``tensor.proto`` and
``tensor_shape.proto``, which are stable.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FLOAT: Final = 1
INT32: Final = 3
"""Datatypes, as TensorFlow numbers them."""

_PACKAGE: Final = "naiad.quickstart.graphdef"
_TYPES: Final = {"bool": 8, "bytes": 12, "float": 2, "int32": 5, "int64": 3, "string": 9}
_MESSAGES: Final = """
Graph: node 1 *Node, versions 4 Versions
Versions: producer 1 int32
Node: name 1 string, op 2 string, input 3 *string, attr 5 *Attribute
Attribute: key 1 string, value 2 Value
Value: list 1 List, s 2 bytes, i 3 int64, f 4 float, b 5 bool, type 6 int32, shape 7 Shape, tensor 8 Tensor
List: i 3 *int64
Shape: dim 2 *Dimension
Dimension: size 1 int64
Tensor: dtype 1 int32, tensor_shape 2 Shape, tensor_content 4 bytes
"""
"""Per line a message with its fields: name, number and type; ``*`` marks those that repeat."""


@cache
def graph_class() -> Any:
    """The class of the message ``Graph``, in a pool of its own: TensorFlow may be loaded beside it."""
    file = descriptor_pb2.FileDescriptorProto(name="graphdef.proto", package=_PACKAGE, syntax="proto3")
    for line in _MESSAGES.strip().splitlines():
        name, _, fields = line.partition(": ")
        message = file.message_type.add(name=name)
        for words in fields.split(", "):
            _add_field(message, *words.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Graph"))


def _add_field(message: Any, name: str, number: str, kind: str) -> None:
    plain = kind.removeprefix("*")
    field = message.field.add(name=name, number=int(number), label=3 if kind.startswith("*") else 1)
    if plain in _TYPES:
        field.type = _TYPES[plain]
    else:
        field.type, field.type_name = 11, f".{_PACKAGE}.{plain}"

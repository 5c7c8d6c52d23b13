"""The messages of TensorFlow Serving's gRPC API that are sent and read, with the numbers of their fields.

Source: the API of TensorFlow Serving (model.proto, predict.proto, get_model_metadata.proto) and the messages of
TensorFlow that it stands on (tensor.proto, tensor_shape.proto, types.proto, meta_graph.proto).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool

from naiad.config.messages import held_class

SERVICE: Final = "tensorflow.serving.PredictionService"
_PACKAGE: Final = "tensorflow.serving"

DTYPES: Final = {
    1: "DT_FLOAT",
    2: "DT_DOUBLE",
    3: "DT_INT32",
    4: "DT_UINT8",
    5: "DT_INT16",
    6: "DT_INT8",
    7: "DT_STRING",
    9: "DT_INT64",
    10: "DT_BOOL",
    14: "DT_BFLOAT16",
    17: "DT_UINT16",
    19: "DT_HALF",
    22: "DT_UINT32",
    23: "DT_UINT64",
}
"""Datatypes by their numbers."""

# Name, number and type of each field. A type in braces is the value of a map whose keys are strings, one in brackets a
# repeated field.
_FIELDS: Final = {
    "Version": "value 1 int64",
    "ModelSpec": "name 1 string, version 2 Version, signature_name 3 string, version_label 4 string",
    "Dim": "size 1 int64, name 2 string",
    "TensorShape": "dim 2 [Dim], unknown_rank 3 bool",
    "Tensor": (
        "dtype 1 int32, tensor_shape 2 TensorShape, tensor_content 4 bytes, float_val 5 [float], "
        "double_val 6 [double], int_val 7 [int32], string_val 8 [bytes], int64_val 10 [int64], bool_val 11 [bool], "
        "half_val 13 [int32], uint32_val 16 [uint32], uint64_val 17 [uint64]"
    ),
    "PredictRequest": "model_spec 1 ModelSpec, inputs 2 {Tensor}",
    "PredictResponse": "outputs 1 {Tensor}",
    "TensorInfo": "name 1 string, dtype 2 int32, tensor_shape 3 TensorShape",
    "SignatureDef": "inputs 1 {TensorInfo}, outputs 2 {TensorInfo}",
    "SignatureDefMap": "signature_def 1 {SignatureDef}",
    "Any": "type_url 1 string, value 2 bytes",
    "GetModelMetadataRequest": "model_spec 1 ModelSpec, metadata_field 2 [string]",
    "GetModelMetadataResponse": "model_spec 1 ModelSpec, metadata 2 {Any}",
}


def serving_message(name: str) -> Any:
    """The class of a message."""
    return held_class(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    """A pool of its own: a process may import TensorFlow, which has messages of the same names."""
    file = descriptor_pb2.FileDescriptorProto(name="tensorflow_serving.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            _add_field(message, *field.split(" "))
    found = descriptor_pool.DescriptorPool()
    found.Add(file)
    return found


def _add_field(message: Any, name: str, number: str, kind: str) -> None:
    inner = kind.strip("{}[]")
    field = message.field.add(name=name, number=int(number), label=1 if inner == kind else 3)
    if not kind.startswith("{"):
        _set_type(field, inner)
        return
    entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    _set_type(entry.field.add(name="key", number=1, label=1), "string")
    _set_type(entry.field.add(name="value", number=2, label=1), inner)
    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"


def _set_type(field: Any, kind: str) -> None:
    if kind in _FIELDS:
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind.upper()}")

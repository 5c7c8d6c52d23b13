"""A gRPC server with the calls of TensorFlow Serving, on grpcio and on TensorFlow's own tensors and signatures.

TensorFlow Serving's messages around them come from no package that these tests have; on the wire an inner message is
its bytes, so they are bytes here. Run as ``python tfserving_grpc_peer.py``; the first line that it prints is its port.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SERVICE = "tensorflow.serving.PredictionService"


def message_classes() -> dict[str, Any]:
    """``Spec``, ``Request`` (of both calls) and ``Response``; maps hold the bytes of inner messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="peer.proto", package="peer", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, bool]) -> None:
        found = file.message_type.add(name=name)
        for field, number, kind, is_repeated in fields:
            found.field.add(name=field, number=number, type=kind, label=3 if is_repeated else 1)

    text, raw = kinds.TYPE_STRING, kinds.TYPE_BYTES
    message("Entry", ("key", 1, text, False), ("value", 2, raw, False))
    message("Spec", ("name", 1, text, False), ("version", 2, raw, False), ("signature", 3, text, False))
    message("Request", ("spec", 1, raw, False), ("entries", 2, raw, True))
    message("Outputs", ("entries", 1, raw, True))
    message("Metadata", ("spec", 1, raw, False), ("entries", 2, raw, True))
    message("Any", ("type_url", 1, text, False), ("value", 2, raw, False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [found.name for found in file.message_type]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"peer.{name}")) for name in names}


class Service:
    """One model, ``half_plus_three``, whose signatures compute with numpy."""

    def __init__(self) -> None:
        import numpy as np
        import tensorflow as tf
        from tensorflow.core.protobuf import meta_graph_pb2

        self.np, self.tf, self.signature_class = np, tf, meta_graph_pb2.SignatureDef
        self.messages = message_classes()
        self.signatures = {
            "serving_default": ({"x": ("float32", [None])}, {"y": ("float32", [None])}),
            "many": (
                {"i": ("int8", [None, 2]), "s": ("string", [None, 1]), "b": ("bool", [None, 1])},
                {"i": ("int8", [None, 2]), "s": ("string", [None, 1]), "b": ("bool", [None, 1])},
            ),
        }

    def metadata(self, request: bytes, context: Any) -> bytes:
        entry, any_of = self.messages["Entry"], self.messages["Any"]
        self.find(self.messages["Request"].FromString(request), context)
        entries = [entry(key=name, value=self.signature(name)).SerializeToString() for name in self.signatures]
        definitions = self.messages["Outputs"](entries=entries).SerializeToString()
        found = any_of(type_url="type.googleapis.com/tensorflow.serving.SignatureDefMap", value=definitions)
        whole = entry(key="signature_def", value=found.SerializeToString()).SerializeToString()
        spec = self.messages["Spec"](name="half_plus_three", version=b"\x08\x7b").SerializeToString()
        return bytes(self.messages["Metadata"](spec=spec, entries=[whole]).SerializeToString())

    def signature(self, name: str) -> bytes:
        found = self.signature_class(method_name="tensorflow/serving/predict")
        for side, tensors in zip((found.inputs, found.outputs), self.signatures[name], strict=True):
            for tensor, (dtype, shape) in tensors.items():
                side[tensor].dtype = self.tf.as_dtype(dtype).as_datatype_enum
                side[tensor].tensor_shape.CopyFrom(self.tf.TensorShape(shape).as_proto())
        return bytes(found.SerializeToString())

    def find(self, request: Any, context: Any) -> str:
        """The signature that a request names."""
        import grpc

        spec = self.messages["Spec"].FromString(request.spec)
        if spec.name != "half_plus_three" or spec.version not in (b"", b"\x08\x7b"):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({spec.name})")
        return str(spec.signature) or "serving_default"

    def predict(self, request: bytes, context: Any) -> bytes:
        entry, tensor = self.messages["Entry"], self.tf.make_tensor_proto
        message = self.messages["Request"].FromString(request)
        name = self.find(message, context)
        given = {}
        for raw in message.entries:
            found = entry.FromString(raw)
            given[found.key] = self.ndarray(found.value)
        expected = {tensor: dtype for tensor, (dtype, _) in self.signatures[name][0].items()}
        assert {key: self.tf.as_dtype(array.dtype).name for key, array in given.items()} == expected
        if name == "serving_default":
            given = {"y": given["x"] / self.np.float32(2) + self.np.float32(3)}
        entries = [
            entry(key=key, value=tensor(array).SerializeToString()).SerializeToString() for key, array in given.items()
        ]
        return bytes(self.messages["Outputs"](entries=entries).SerializeToString())

    def ndarray(self, raw: bytes) -> Any:
        from tensorflow.core.framework import tensor_pb2

        return self.tf.make_ndarray(tensor_pb2.TensorProto.FromString(raw))


def main() -> None:
    """Serve until standard input ends."""
    import grpc

    service = Service()
    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {
        "Predict": grpc.unary_unary_rpc_method_handler(service.predict),
        "GetModelMetadata": grpc.unary_unary_rpc_method_handler(service.metadata),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


@contextmanager
def tfserving_grpc_peer() -> Iterator[str]:
    """A running peer: its ``host:port``."""
    # Imported here: as a program this file stands alone.
    from support.peer_process import running

    with running(Path(__file__), []) as address:
        yield address


if __name__ == "__main__":
    main()

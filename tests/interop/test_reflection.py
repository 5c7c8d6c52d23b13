"""Clients that know nothing but gRPC's own services: what is served, they learn by reflection."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from interop.calls import CALL_S, channel
from naiad.testing import RunningServer, serving
from support.served_models import identity, write_model


class ReflectedService:
    """A service whose methods and messages were asked for by reflection."""

    def __init__(self, opened: grpc.Channel, service: str) -> None:
        self._channel = opened
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(opened))
        self._service = pool.FindServiceByName(service)

    def call(self, method: str, **fields: Any) -> Any:
        """Call a method with a request of these fields; the answer, or the answers of a streaming method."""
        found = self._service.FindMethodByName(method)
        given, made = GetMessageClass(found.input_type), GetMessageClass(found.output_type)
        begin = self._channel.unary_stream if found.server_streaming else self._channel.unary_unary
        path = f"/{self._service.full_name}/{method}"
        caller = begin(path, request_serializer=given.SerializeToString, response_deserializer=made.FromString)
        return caller(given(**fields), timeout=CALL_S)


def test_the_services_are_listed(server: RunningServer) -> None:
    with channel(server) as opened:
        listed = ProtoReflectionDescriptorDatabase(opened).get_services()
    assert sorted(listed) == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
    ]


def test_an_inference_with_nothing_but_reflection(server: RunningServer) -> None:
    values = np.array([1.5, -2], np.float32)
    with channel(server) as opened:
        service = ReflectedService(opened, "inference.GRPCInferenceService")
        assert service.call("ServerMetadata").name == "nymph"
        assert service.call("ModelConfig", name="sum").config.dynamic_batching.max_queue_delay_microseconds == 2000
        answer = service.call(
            "ModelInfer",
            model_name="vector",
            inputs=[{"name": "INPUT0", "datatype": "FP32", "shape": [2]}],
            raw_input_contents=[values.tobytes()],
        )
    assert list(answer.raw_output_contents) == [values.tobytes()]


def test_health(server: RunningServer) -> None:
    with channel(server) as opened:
        service = ReflectedService(opened, "grpc.health.v1.Health")
        for name in ("", "inference.GRPCInferenceService"):
            assert status_name(service.call("Check", service=name)) == "SERVING"
        watching = service.call("Watch")
        assert status_name(next(watching)) == "SERVING"
        watching.cancel()


@pytest.mark.slow
def test_who_watches_learns_of_the_end(transport: str, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "slow", identity("TYPE_FP32", "-1", delay_ms=100))
    with serving(tmp_path / "log", tmp_path / "models", "--grpc-transport", transport) as server:
        with channel(server) as opened:
            watching = ReflectedService(opened, "grpc.health.v1.Health").call("Watch")
            assert status_name(next(watching)) == "SERVING"
            server.signal(signal.SIGTERM)
            assert status_name(next(watching)) == "NOT_SERVING"
            with pytest.raises(grpc.RpcError) as failure:
                next(watching)
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
        assert server.wait_exit() == 0


def status_name(answer: Any) -> str:
    field = answer.DESCRIPTOR.fields_by_name["status"]
    return str(field.enum_type.values_by_number[answer.status].name)

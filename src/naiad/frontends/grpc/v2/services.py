"""All methods that are served over gRPC: one table by path, whichever transport carries them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from naiad.engine.engine import Engine
from naiad.frontends.grpc.rpc.call import Body, Method, RpcCall, Streaming, Unary
from naiad.frontends.grpc.v2.header_forwarding import ForwardingInferHandler, ForwardingStreamService
from naiad.frontends.grpc.v2.health import HealthService
from naiad.frontends.grpc.v2.infer import GrpcInferHandler
from naiad.frontends.grpc.v2.infer_reader import RequestDecoder
from naiad.frontends.grpc.v2.message_arena import find_arena
from naiad.frontends.grpc.v2.metadata import Description
from naiad.frontends.grpc.v2.reflection import reflection_methods
from naiad.frontends.grpc.v2.replies import protobuf_method
from naiad.frontends.grpc.v2.repository import Repository
from naiad.frontends.grpc.v2.settings import LogSettingsMethod, TraceSettingMethod
from naiad.frontends.grpc.v2.shared_memory import SharedMemory
from naiad.frontends.grpc.v2.statistics import statistics_method
from naiad.frontends.grpc.v2.stream import StreamService
from naiad.frontends.inference.header_forwarding import HeaderForwarding
from naiad.options import INT32_MAX
from naiad.wire.grpc.paths import HEALTH, INFERENCE, path


def make_methods(
    engine: Engine, max_waiting: int = INT32_MAX, forwarding: HeaderForwarding | None = None
) -> dict[str, Method]:
    """All methods by path, such as ``/inference.GRPCInferenceService/ModelInfer``, on one engine.

    ``max_waiting`` is as ``StreamService`` takes it, ``forwarding`` chooses the metadata that become parameters.
    """
    infer: Callable[[RpcCall, Body], None]
    if forwarding is None:
        infer = GrpcInferHandler(RequestDecoder(engine, serves_decoupled=False), engine.regions)
        streams = StreamService(engine, max_waiting)
    else:
        infer = ForwardingInferHandler(engine, forwarding)
        streams = ForwardingStreamService(engine, max_waiting, forwarding)
    find = partial(find_arena, engine)
    methods: dict[str, Method] = {
        path(INFERENCE, "ModelInfer"): Unary(infer, True, engine.budget.check, find),
        path(INFERENCE, "ModelStreamInfer"): Streaming(streams.open, True, find),
    }
    for name, make_response in _described(Description(engine)).items():
        methods[path(INFERENCE, name)] = protobuf_method(f"{name}Request", make_response)
    methods[path(INFERENCE, "LogSettings")] = protobuf_method("LogSettingsRequest", LogSettingsMethod(engine))
    methods[path(INFERENCE, "TraceSetting")] = protobuf_method("TraceSettingRequest", TraceSettingMethod(engine))
    methods[path(INFERENCE, "ModelStatistics")] = statistics_method(engine)
    for name, method in Repository(engine).methods().items():
        methods[path(INFERENCE, name)] = method
    for name, method in SharedMemory(engine).methods().items():
        methods[path(INFERENCE, name)] = method
    methods.update(HealthService(engine).methods())
    methods.update(reflection_methods((INFERENCE, HEALTH)))
    return methods


def _described(description: Description) -> dict[str, Callable[[Any], Any]]:
    return {
        "ServerLive": description.server_live,
        "ServerReady": description.server_ready,
        "ModelReady": description.model_ready,
        "ServerMetadata": description.server_metadata,
        "ModelMetadata": description.model_metadata,
        "ModelConfig": description.model_config,
    }

"""Names of the services that are served, as they begin the path of a method."""

from __future__ import annotations

from typing import Final

INFERENCE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
REFLECTION: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


def path(service: str, method: str) -> str:
    """The path of a method: ``/service/method``."""
    return f"/{service}/{method}"

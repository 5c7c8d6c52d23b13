"""The feature of the protocol that a path belongs to, and the scopes of an API key that open it.

Source of the features: the reference's restricted features. The scopes are Naiad's own.
"""

from __future__ import annotations

import re
from typing import Final

from naiad.config.routes import ALIAS_PATTERN
from naiad.wire.grpc.paths import HEALTH, INFERENCE

_MODEL = rf"/v2/models/[^/]+(?:/versions/(?:[0-9]+|{ALIAS_PATTERN}))?"
_HTTP: Final = tuple(
    # The first match counts: ``/v2/models/stats`` also matches as a model named ``stats``.
    (re.compile(pattern), feature)
    for pattern, feature in (
        (rf"{_MODEL}/(?:infer|generate|generate_stream)", "inference"),
        (rf"/v2/health/.*|{_MODEL}/ready", "health"),
        (rf"/v2/models/stats|{_MODEL}/stats", "statistics"),
        (rf"{_MODEL}/config(?:/written)?", "model-config"),
        (rf"/v2/?|{_MODEL}|/openapi\.json", "metadata"),
        (r"/v2/repository/.*|/v2/models/[^/]+/routes(?:/.*)?", "model-repository"),
        (r"/v2/(?:system|cuda)sharedmemory.*", "shared-memory"),
        (rf"(?:/v2|{_MODEL})/trace/setting", "trace"),
        (rf"(?:/v2|{_MODEL})/traces/slow", "trace"),
        (r"/v2/logging", "logging"),
    )
)
_GRPC: Final = {
    "ServerLive": "health",
    "ServerReady": "health",
    "ModelReady": "health",
    "ServerMetadata": "metadata",
    "ModelMetadata": "metadata",
    "ModelInfer": "inference",
    "ModelStreamInfer": "inference",
    "ModelConfig": "model-config",
    "ModelStatistics": "statistics",
    "RepositoryIndex": "model-repository",
    "RepositoryModelLoad": "model-repository",
    "RepositoryModelUnload": "model-repository",
    "SystemSharedMemoryStatus": "shared-memory",
    "SystemSharedMemoryRegister": "shared-memory",
    "SystemSharedMemoryUnregister": "shared-memory",
    "CudaSharedMemoryStatus": "shared-memory",
    "CudaSharedMemoryRegister": "shared-memory",
    "CudaSharedMemoryUnregister": "shared-memory",
    "TraceSetting": "trace",
    "LogSettings": "logging",
}

HEALTH_FEATURE: Final = "health"
REPOSITORY_FEATURE: Final = "model-repository"
_ANY: Final = frozenset({"infer", "manage", "observe"})
_SCOPES: Final = {
    "inference": frozenset({"infer"}),
    "statistics": frozenset({"observe"}),
    "shared-memory": frozenset({"manage"}),
    "model-repository": frozenset({"manage"}),
    "trace": frozenset({"manage"}),
    "logging": frozenset({"manage"}),
}


def feature_of_http(target: str) -> str:
    """The feature that the path ``target`` belongs to, whatever the method; "" for none."""
    return next((feature for pattern, feature in _HTTP if pattern.fullmatch(target)), "")


def feature_of_grpc(path: str) -> str:
    """The feature that the method at ``path`` belongs to; "" for none, such as server reflection."""
    service, _, method = path.removeprefix("/").rpartition("/")
    if service == HEALTH:
        return HEALTH_FEATURE
    return _GRPC.get(method, "") if service == INFERENCE else ""


def scopes_of(feature: str) -> frozenset[str]:
    """The scopes that open ``feature``: one of them is enough. Paths without a feature are open to any key."""
    return _SCOPES.get(feature, _ANY)

"""The target that the options ask for."""

from __future__ import annotations

from naiad.perf.settings import PerfSettings
from naiad.perf.target.kserve_grpc import KserveGrpcTarget
from naiad.perf.target.kserve_http import KserveHttpTarget
from naiad.perf.target.protocol import PerfTarget, TargetError


def open_target(settings: PerfSettings) -> PerfTarget:
    """Reach the service.

    Raises:
        TargetError: it is not reached, or its kind is not known.
    """
    kind = settings.target.service_kind
    if kind != "triton":
        raise TargetError(f"services of the kind '{kind}' cannot be measured yet")
    if settings.target.protocol == "grpc":
        return KserveGrpcTarget(settings.target)
    return KserveHttpTarget(settings.target, settings.input)

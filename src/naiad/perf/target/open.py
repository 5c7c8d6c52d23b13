"""The target that the options ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, runtime_checkable

from naiad.perf.settings import PerfSettings
from naiad.perf.target.kserve_grpc import KserveGrpcTarget
from naiad.perf.target.kserve_http import KserveHttpTarget
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import PerfTarget
from naiad.perf.target.services.openai import OpenAiTarget
from naiad.perf.target.services.tfserving import TfServingTarget
from naiad.perf.target.services.tfserving_grpc import TfServingGrpcTarget
from naiad.perf.target.services.torchserve import TorchServeTarget


@runtime_checkable
class ServingTarget(Protocol):
    """A target whose model runs in this process, on a loop of its own."""

    def open_loop(self) -> EpollLoop:
        """A loop that runs the model beside the load."""
        ...

    def close(self) -> None:
        """Unload the model."""
        ...


def open_kserve(settings: PerfSettings) -> KserveHttpTarget | KserveGrpcTarget:
    """Reach a server of the KServe protocol.

    Raises:
        TargetError: it is not reached.
    """
    if settings.target.protocol == "grpc":
        return KserveGrpcTarget(settings.target)
    return KserveHttpTarget(settings.target, settings.input)


def open_target(settings: PerfSettings) -> PerfTarget:
    """Reach the service.

    Raises:
        TargetError: it is not reached, or the options do not go with it.
    """
    kind = settings.target.service_kind
    if kind == "in_process":
        # Imported here: no other service needs a whole server.
        from naiad.perf.target.in_process.target import InProcessTarget

        return InProcessTarget(settings.target)
    if kind == "openai":
        return OpenAiTarget(settings.target)
    if kind == "tfserving":
        is_grpc = settings.target.protocol == "grpc"
        return (TfServingGrpcTarget if is_grpc else TfServingTarget)(settings.target, settings.input)
    if kind == "torchserve":
        return TorchServeTarget(settings.target)
    return open_kserve(settings)


@contextmanager
def opened(settings: PerfSettings) -> Iterator[PerfTarget]:
    """The target while the block runs; errors as ``open_target``."""
    target = open_target(settings)
    try:
        yield target
    finally:
        if isinstance(target, ServingTarget):
            target.close()


def loop_of(target: PerfTarget) -> EpollLoop:
    """A loop for the load of a target."""
    return target.open_loop() if isinstance(target, ServingTarget) else EpollLoop()


def at_service(settings: PerfSettings) -> PerfSettings:
    """The settings with what the target needs to know of the other parts, and what they need to know of it."""
    # A model in this process is measured by its pid.
    measure = settings.measure
    keeps = settings.output.profile_export_file is not None
    settings = replace(settings, target=replace(settings.target, keeps_responses=keeps))
    if settings.target.service_kind != "in_process" or measure.server_pid is not None:
        return settings
    return replace(settings, measure=replace(measure, server_pid=os.getpid()))

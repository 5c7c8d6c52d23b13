"""Says everything that is wrong with a configuration, at once."""

from __future__ import annotations

from typing import Any

from naiad.config.problems import LoadingConfigError, Origin
from naiad.config.rules import (
    batch_shapes,
    batch_tensors,
    batching,
    ensemble,
    general,
    instances,
    latency_objective,
    memory,
    metrics,
    parameters,
    routes,
    sequence,
    tensors,
)
from naiad.errors import ConfigError
from naiad.gpus.usable import NO_GPUS, UsableGpus


def validate(
    config: Any, *, origin: Origin | None = None, directory: str | None = None, gpus: UsableGpus = NO_GPUS
) -> list[ConfigError]:
    """Every problem of ``config``, a completed and normalised ``ModelConfig``; empty when there is none.

    The order is that in which the reference server checks, so the first problem is the one that it reports.

    Args:
        origin: where the configuration was read, to place the problems.
        directory: name of the model's folder, which must be the model's name; None for a model without one.
        gpus: those that can be used.
    """
    place = origin or Origin()
    model = [
        *general.violations(config, directory),
        *batching.violations(config),
        *sequence.violations(config),
        *ensemble.violations(config),
        *metrics.violations(config),
    ]
    # The reference finds these only while it loads a version, and the error of the load says so.
    version = [
        *batch_tensors.violations(config),
        *batch_shapes.violations(config),
        *instances.violations(config, gpus),
        *tensors.violations(config),
        *sequence.state_violations(config),
        *routes.violations(config),
        *memory.violations(config),
        *latency_objective.violations(config),
        *parameters.violations(config),
    ]
    return [
        *(place.error(violation.message, violation.path) for violation in model),
        *(LoadingConfigError(found.message, place.file, place.line(found.path)) for found in version),
    ]

"""``--accelerator-check``: whether a model is faster with its accelerators than without them, on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from naiad.errors import NaiadError
from naiad.execution.instances.run_times import RunTimes
from naiad.execution.instances.warmup import Sample, Warmup
from naiad.execution.model.loaded_model import LoadedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.backend_api.backend import Backend
    from naiad.config.read import ReadConfig
    from naiad.config.spec import ModelSpec

logger = logging.getLogger("naiad")

# Medians of equal runs differ by this much where other programs run beside them.
_EQUAL: Final = 1.05


def without_accelerators(read: ReadConfig) -> ReadConfig:
    """The configuration of the same model without its accelerators."""
    config = type(read.config)()
    config.CopyFrom(read.config)
    config.optimization.ClearField("execution_accelerators")
    return replace(read, config=config)


def check_accelerators(
    spec: ModelSpec,
    times: RunTimes,
    samples: Sequence[Sample],
    start_plain: Callable[[], tuple[Backend, ModelSpec]],
    version: int,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Log how the runs of a model, measured in ``times``, compare with those of the same model without accelerators.

    Called in a loading thread. Nothing of the plain model stays behind; that it cannot be measured is a warning.

    Args:
        samples: that the model was warmed up with.
        start_plain: loads the model without accelerators.
    """
    plain = RunTimes()
    try:
        backend, plain_spec = start_plain()
        # One instance is enough to measure.
        groups = tuple(replace(group, count=1) for group in plain_spec.instance_groups[:1])
        model = LoadedModel(replace(plain_spec, instance_groups=groups), version, backend, loop)
        model.start(Warmup(samples, times=plain))
        model.close()
        loop.call_soon_threadsafe(model.detach)
    except NaiadError as error:
        logger.warning("model '%s': its accelerators were not checked: without them %s", spec.name, error)
        return
    if not (plain.seconds and times.seconds):
        logger.warning("model '%s': its accelerators were not checked: the warm-up sample fails", spec.name)
        return
    _report(spec, times, plain)


def _report(spec: ModelSpec, times: RunTimes, plain: RunTimes) -> None:
    names = ", ".join(dict.fromkeys(each.name for each in spec.accelerators))
    ratio = times.median_s / plain.median_s
    figures = (
        f"{1000 * times.median_s:.3g} ms against {1000 * plain.median_s:.3g} ms a run of sample '{times.sample}' "
        f"(medians of {len(times.seconds)} and {len(plain.seconds)} runs)"
    )
    if ratio > _EQUAL:
        logger.warning(
            "model '%s' is slower with %s than without, %.2f times: %s; remove "
            "optimization.execution_accelerators from its configuration, unless this machine was busy",
            spec.name,
            names,
            ratio,
            figures,
        )
    elif ratio < 1 / _EQUAL:
        logger.info("model '%s' is faster with %s, %.2f times: %s", spec.name, names, 1 / ratio, figures)
    else:
        logger.info("model '%s' is as fast with %s as without: %s", spec.name, names, figures)

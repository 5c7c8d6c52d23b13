"""``nav.python.optimize``: a Python callable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from naiad.navigator.configuration import CustomConfig, DeviceKind, OptimizationProfile
from naiad.navigator.optimize import optimize_object
from naiad.navigator.package import Package


def optimize(
    model: Any,
    dataloader: Iterable[Any],
    sample_count: int | None = 100,
    batching: bool | None = True,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    target_formats: Sequence[Any] | None = None,
    target_device: DeviceKind | None = DeviceKind.CPU,
    runners: Sequence[Any] | None = None,
    optimization_profile: OptimizationProfile | None = None,
    workspace: str | Path | None = None,
    verbose: bool | None = False,
    debug: bool | None = False,
    verify_func: Callable[..., Any] | None = None,
    custom_configs: Sequence[CustomConfig] | None = None,
    model_precision: Any = None,
) -> Package:
    """Convert a Python callable to other formats, verify and measure them.

    ``target_device``, ``runners``, ``debug`` and ``model_precision`` have no effect.

    Raises:
        ConvertError: the model or the samples cannot be used.
    """
    return optimize_object(
        model,
        dataloader,
        sample_count,
        batching,
        input_names,
        output_names,
        target_formats,
        optimization_profile,
        workspace,
        verbose,
        verify_func,
        custom_configs,
    )

"""``nav.package.profile``: calls the formats of a package with other samples, in the calling process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml

from naiad.convert.errors import StepError
from naiad.convert.formats import FORMATS
from naiad.convert.results import Conversion, FormatResult
from naiad.convert.runners import open_runner
from naiad.convert.samples import Sample, collect, load_samples, with_rows
from naiad.convert.signature import SourceSignature
from naiad.navigator.configuration import CommandStatus, OptimizationProfile
from naiad.navigator.exceptions import ModelNavigatorEmptyPackageError, ModelNavigatorUserInputError
from naiad.navigator.formats import our_formats

log = logging.getLogger("naiad")


class Profiled(Protocol):
    """The parts of a package that are profiled."""

    conversion: Conversion

    @property
    def signature(self) -> SourceSignature:
        """The model's tensors."""

    def is_empty(self) -> bool:
        """Whether no format was made."""


@dataclass
class ProfilingResult:
    """One batch size of one sample: latencies in milliseconds, and inferences a second."""

    batch_size: int
    avg_latency: float
    std_latency: float
    p50_latency: float
    p90_latency: float
    p95_latency: float
    p99_latency: float
    throughput: float
    request_count: int


@dataclass
class RunnerProfilingResults:
    """The results of one runner: ``status`` is OK or FAIL, ``detailed`` has the results by the number of the sample."""

    status: CommandStatus = CommandStatus.OK
    detailed: dict[int, list[ProfilingResult]] = field(default_factory=dict)


@dataclass
class RunnerResults:
    """The results of the runners of one format."""

    runners: dict[str, RunnerProfilingResults] = field(default_factory=dict)


@dataclass
class ProfilingResults:
    """The results of all formats; ``samples_data`` has the shapes of each sample."""

    models: dict[str, RunnerResults] = field(default_factory=dict)
    samples_data: dict[int, dict[str, list[int]]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The results in types that YAML has."""
        return asdict(self, dict_factory=_plain)

    def to_file(self, path: str | Path) -> None:
        """Write them as YAML."""
        Path(path).write_text(yaml.safe_dump(self.to_dict(), sort_keys=False), encoding="utf-8")


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    # YAML's safe dumper knows no enumerations.
    return {name: str(value) if isinstance(value, CommandStatus) else value for name, value in fields}


def profile(
    package: Profiled,
    dataloader: Iterable[Any] | None = None,
    target_formats: Sequence[Any] | None = None,
    target_device: Any = None,
    runners: Sequence[Any] | None = None,
    max_batch_size: int | None = None,
    batch_sizes: Sequence[int] | None = None,
    window_size: int = 50,
    stability_percentage: float = 10.0,
    stabilization_windows: int = 3,
    min_trials: int = 3,
    max_trials: int = 10,
    throughput_cutoff_threshold: float | None = 0.05,
    throughput_backoff_limit: int = 2,
    verbose: bool = False,
) -> ProfilingResults:
    """Call every format that was made, over batch sizes and the samples of a loader, without a server.

    Args:
        dataloader: without it the package's own first sample is taken.
        window_size: calls in one window.
        target_device, runners: have no effect.

    Raises:
        ModelNavigatorEmptyPackageError: no format was made.
        ModelNavigatorUserInputError: the loader's samples cannot be used.
    """
    if package.is_empty():
        raise ModelNavigatorEmptyPackageError("no format of the package was made")
    settings = OptimizationProfile(
        max_batch_size,
        batch_sizes,
        window_size,
        stability_percentage,
        stabilization_windows,
        min_trials,
        max_trials,
        throughput_cutoff_threshold,
        throughput_backoff_limit,
    )
    samples = _samples(package, dataloader)
    wanted = our_formats(target_formats)
    found = ProfilingResults()
    for index, sample in enumerate(samples):
        found.samples_data[index] = {name: list(array.shape) for name, array in sample.items()}
    for result in package.conversion.formats:
        if result.is_made and (not wanted or result.target in wanted):
            if verbose:
                print(f"{result.target} ...", flush=True)  # noqa: T201  # what the caller asked for
            runner = _profiled(package, result, samples, settings)
            found.models[result.target] = RunnerResults({FORMATS[result.target].module: runner})
    return found


def _samples(package: Profiled, dataloader: Iterable[Any] | None) -> list[Sample]:
    if dataloader is None:
        return load_samples(Path(package.conversion.work) / "samples")[:1]
    names = [tensor.name for tensor in package.signature.inputs]
    try:
        return collect(dataloader, 100, names, "the data loader")
    except StepError as error:
        raise ModelNavigatorUserInputError(f"{error}; {error.advice}") from None


def _profiled(
    package: Profiled, result: FormatResult, samples: Sequence[Sample], settings: OptimizationProfile
) -> RunnerProfilingResults:
    """A format that fails for a sample keeps what it did before."""
    found = RunnerProfilingResults()
    try:
        call = open_runner(result.target, result.made or {}, package.signature)
        for index, sample in enumerate(samples):
            found.detailed[index] = []
            for one in _levels(call, sample, package.signature.is_batching, settings):
                found.detailed[index].append(one)
    except Exception as error:
        log.warning("%s could not be called: %s: %s", result.target, type(error).__name__, error)
        found.status = CommandStatus.FAIL
    return found


def _levels(
    call: Callable[[Sample], Any], sample: Sample, is_batching: bool, settings: OptimizationProfile
) -> Iterable[ProfilingResult]:
    """Batch sizes in ascending order, until several in turn gain too little."""
    best, idle = 0.0, 0
    for size in settings.measuring().sizes if is_batching else [1]:
        one = _level(call, with_rows([sample], size) if is_batching else sample, size, settings)
        yield one
        gains = one.throughput > best * (1 + (settings.throughput_cutoff_threshold or 0.0))
        idle = 0 if gains else idle + 1
        best = max(best, one.throughput)
        if settings.throughput_cutoff_threshold is not None and idle >= max(settings.throughput_backoff_limit, 1):
            return


def _level(call: Callable[[Sample], Any], sample: Sample, size: int, settings: OptimizationProfile) -> ProfilingResult:
    """Windows until the last ones agree."""
    windows: list[list[float]] = []
    call(sample)
    while len(windows) < settings.max_trials:
        windows.append([_duration_ms(call, sample) for _ in range(settings.window_size)])
        means = [float(np.mean(window)) for window in windows[-settings.stabilization_windows :]]
        spread = 100 * (max(means) - min(means)) / min(means)
        enough = len(windows) >= max(settings.min_trials, settings.stabilization_windows)
        if enough and spread <= settings.stability_percentage:
            break
    durations = np.concatenate(windows[-settings.stabilization_windows :])
    p50, p90, p95, p99 = (float(np.percentile(durations, percent)) for percent in (50, 90, 95, 99))
    mean = float(durations.mean())
    return ProfilingResult(size, mean, float(durations.std()), p50, p90, p95, p99, 1000 * size / mean, len(durations))


def _duration_ms(call: Callable[[Sample], Any], sample: Sample) -> float:
    began = time.perf_counter_ns()
    call(sample)
    return (time.perf_counter_ns() - began) / 1e6

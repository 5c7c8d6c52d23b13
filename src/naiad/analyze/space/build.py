"""Which space a file asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from naiad.analyze.errors import TrialError
from naiad.analyze.settings.settings import AnalyzeSettings, ModelSettings
from naiad.analyze.space.knobs import Knob, Subject
from naiad.analyze.space.space import Dimension, LoadLimits, Space

_FILLS: Final = (0.0625, 0.125, 0.25, 0.5, 1.0)
"""Parts of the concurrency that keeps all instances busy: fewer requests wait less."""
_MOST_HTTP: Final = 512
"""Each request in flight takes a connection over HTTP."""


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """The bounds, and the powers of two between them."""
    found = [1 << power for power in range(high.bit_length()) if low <= 1 << power <= high]
    return tuple(sorted({low, *found, high}))


def build_space(settings: AnalyzeSettings, subjects: Sequence[Subject], sections: Sequence[ModelSettings]) -> Space:
    """The space of models that are measured together, and of those that they call.

    Args:
        sections: what the file says of each subject.

    Raises:
        TrialError: a model takes none of the batch sizes that are listed.
    """
    dimensions: list[Dimension] = []
    limits = []
    for owner, (subject, model) in enumerate(zip(subjects, sections, strict=True)):
        for knob, values, is_ordered in _of_model(settings, subject, model):
            if len(values) > 1 or knob in _ALWAYS:
                dimensions.append(Dimension(owner, knob, tuple(values), is_ordered))
        if not subject.is_composing:
            for knob, loads in _of_load(settings, subject, model):
                dimensions.append(Dimension(owner, knob, tuple(loads)))
        most = settings["run_config_search_max_concurrency"]
        if settings["client_protocol"] == "http":
            most = min(most, _MOST_HTTP)
        limits.append(
            LoadLimits(
                settings["run_config_search_min_concurrency"],
                most,
                model.batch_sizes[0],
                settings["recorded_traffic"] is not None,
            )
        )
    return Space(tuple(subjects), tuple(dimensions), tuple(limits))


_ALWAYS: Final = (Knob.CONFIGURATION, Knob.INSTANCES, Knob.MAX_BATCH_SIZE)


def _of_model(
    settings: AnalyzeSettings, subject: Subject, model: ModelSettings
) -> Iterator[tuple[Knob, Sequence[Any], bool]]:
    if len(subject.configs) > 1:
        yield Knob.FORMAT, tuple(subject.configs), False
    is_free = not settings["run_config_search_disable"] and not settings["reload_model_disable"]
    if model.configurations:
        # One of them as in the file: fields that are listed are not searched beside that.
        yield Knob.CONFIGURATION, model.configurations, False
        if settings["run_config_search_mode"] != "optuna" or not is_free:
            return
    if not is_free:
        return
    listed = {name for config in model.configurations for name in config}
    if subject.can_batch and "max_batch_size" not in listed:
        low, high = (
            settings["run_config_search_min_model_batch_size"],
            settings["run_config_search_max_model_batch_size"],
        )
        yield Knob.MAX_BATCH_SIZE, powers_of_two(low, high), True
    if subject.has_instances and "instance_group" not in listed:
        low, high = settings["run_config_search_min_instance_count"], settings["run_config_search_max_instance_count"]
        yield Knob.INSTANCES, range(low, high + 1), True
    if subject.can_batch and "dynamic_batching" not in listed:
        yield Knob.DELAY, settings["search_delay_microseconds"] or (), True
        yield Knob.PREFERRED, settings["search_preferred_batch_sizes"] or (), False
    if subject.has_threads:
        yield Knob.THREADS, settings["search_threads"] or (), True
    if subject.has_instances and not _is_python(subject.config):
        yield Knob.EXECUTION, settings["search_execution"] or (), False


def _is_python(config: Mapping[str, Any]) -> bool:
    return config.get("backend") == "python"


def _sizes_that_fit(subject: Subject, model: ModelSettings, sizes: Sequence[int]) -> Sequence[int]:
    """The batch sizes that one of the listed configurations takes, or that of the repository."""
    listed = [subject.config, *model.configurations]
    most = max(1, *(int(config.get("max_batch_size") or 0) for config in listed))
    found = [size for size in sizes if size <= most]
    if not found:
        given = ", ".join(map(str, sizes))
        raise TrialError(f"batch_sizes: found {given}, expected at most {most}, which is what the model takes")
    return found


def _of_load(settings: AnalyzeSettings, subject: Subject, model: ModelSettings) -> Iterator[tuple[Knob, Sequence[Any]]]:
    sizes: Sequence[int] = model.batch_sizes
    if settings.mode == "offline" and sizes == (1,) and int(subject.config.get("max_batch_size", 0)) > 1:
        sizes = powers_of_two(1, settings["run_config_search_max_model_batch_size"])
    fixed = settings["run_config_search_disable"] or bool(model.configurations)
    if fixed or not subject.can_batch:
        sizes = _sizes_that_fit(subject, model, sizes)
    if len(sizes) > 1 or sizes[0] != model.batch_sizes[0]:
        yield Knob.BATCH_SIZE, sizes
    if settings["recorded_traffic"] is not None:
        return
    if model.request_rate:
        yield Knob.RATE, model.request_rate
    elif settings["request_rate_search_enable"]:
        low, high = settings["run_config_search_min_request_rate"], settings["run_config_search_max_request_rate"]
        yield Knob.RATE, powers_of_two(low, high)
    elif model.concurrency:
        yield Knob.CONCURRENCY, model.concurrency
    elif settings["run_config_search_disable"]:
        yield Knob.CONCURRENCY, (1,)
    elif settings["run_config_search_mode"] == "halving" and model.goal.latency_budget_ms is not None:
        yield Knob.FILL, _FILLS

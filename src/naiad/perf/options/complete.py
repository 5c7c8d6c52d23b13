"""What follows from the options once the model is known: defaults that depend on it, and options that do not fit it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from naiad.perf.load_mode import LoadMode
from naiad.perf.options.error import PerfOptionError
from naiad.perf.settings import LoadPlan, PerfSettings
from naiad.perf.steps import ModelDescription
from naiad.spelling import nearest_spelling

MAX_THREADS: Final = 16
"""The bound of requests in flight of an open search with the synchronous API, and the least one otherwise."""
MAX_THREADS_OF_RATES: Final = 4

_BY_RATE: Final = (LoadMode.REQUEST_RATE, LoadMode.CUSTOM_INTERVALS, LoadMode.FIXED_SCHEDULE)


def complete_settings(settings: PerfSettings, model: ModelDescription) -> PerfSettings:
    """The settings for ``model``: whether calls are asynchronous, the bound of threads, the end of an open search.

    ``settings`` are those of ``parse_perf``. The result has no ``None`` in ``target.is_async`` and
    ``load.max_threads``, and what is to be said of it in ``warnings``.

    Raises:
        PerfOptionError: one line for each option that does not fit the model.
    """
    is_async = _is_async(settings, model)
    target = replace(settings.target, is_async=is_async)
    completed = replace(settings, target=target, warnings=(*settings.warnings, *_warnings(settings, model, is_async)))
    problems = [
        *_of_batches(completed, model),
        *_of_streams(completed, model),
        *_of_sequences(completed, model),
    ]
    if problems:
        raise PerfOptionError("\n".join(f"Error: {text}" for text in problems))
    return replace(completed, load=_load(completed))


def has_sequences(model: ModelDescription) -> bool:
    """Whether requests of the model belong to sequences: its own, or those of a step's model."""
    return model.is_sequence or any(map(has_sequences, model.composing))


def _is_async(settings: PerfSettings, model: ModelDescription) -> bool:
    if settings.target.streaming:
        return True
    asked = settings.target.is_async
    return has_sequences(model) if asked is None else asked


def _of_batches(settings: PerfSettings, model: ModelDescription) -> Iterator[str]:
    # Other services do not say what batches they take.
    if settings.target.service_kind not in ("triton", "in_process"):
        return
    largest = max(map(int, settings.sweep.get("batch", (settings.input.batch_size,))))
    if largest <= 1:
        return
    if model.max_batch_size == 0:
        yield "can not specify batch size > 1 as the model does not support batching"
    elif largest > model.max_batch_size:
        yield f"can not specify batch size > {model.max_batch_size} as that is the max_batch_size of the model"
    if has_sequences(model):
        yield "can not specify batch size > 1 when using a sequence model"


def _of_streams(settings: PerfSettings, model: ModelDescription) -> Iterator[str]:
    target, load = settings.target, settings.load
    if target.streaming and "sync" in settings.given:
        yield "can not use streaming with synchronous API"
    if model.is_decoupled and not target.streaming:
        yield (
            "Decoupled models must be run with `--async` and `--streaming` and either `-i grpc` or "
            "`--service-kind=triton_c_api`"
        )
    if load.mode is LoadMode.PERIODIC_CONCURRENCY and load.request_period > 1 and not model.is_decoupled:
        yield (
            f"the --periodic-concurrency-range option waits for {load.request_period} responses of each request "
            f"(--request-period), but the model is not decoupled: it sends one"
        )


def _of_sequences(settings: PerfSettings, model: ModelDescription) -> Iterator[str]:
    load = settings.load
    is_open = load.mode is LoadMode.CONCURRENCY and load.levels.end == 0
    if is_open and has_sequences(model) and settings.target.is_async:
        yield "The 'end' concurrency can not be 0 for sequence models when using asynchronous API."
    first, behind = load.sequence_id_range
    if not behind:
        return
    if load.mode is LoadMode.CONCURRENCY and behind - first < max(load.levels.start, load.levels.end):
        yield _too_few_ids("maximum possible concurrency")
    elif load.mode in _BY_RATE and behind - first < load.num_of_sequences:
        yield _too_few_ids("maximum possible number of sequences")


def _too_few_ids(than: str) -> str:
    return f"sequence id range specified is smaller than the {than}, sequence id collision may occur."


def _load(settings: PerfSettings) -> LoadPlan:
    """The load with its bound of threads, and with an end where that bound ends the search."""
    load, levels = settings.load, settings.load.levels
    if load.mode is not LoadMode.CONCURRENCY:
        return replace(load, max_threads=load.max_threads or MAX_THREADS_OF_RATES)
    threads = load.max_threads or max(MAX_THREADS, int(levels.end))
    if settings.target.is_async:
        return replace(load, max_threads=threads)
    if levels.end == 0:
        return replace(load, max_threads=threads, levels=replace(levels, end=max(levels.start, threads)))
    return replace(load, max_threads=int(max(levels.start, levels.end)))


def _warnings(settings: PerfSettings, model: ModelDescription, is_async: bool) -> Iterator[str]:
    load = settings.load
    if load.mode is LoadMode.CONCURRENCY and not is_async:
        if load.levels.end == 0:
            yield "The maximum attainable concurrency will be limited by max_threads specification."
        elif "max-threads" in settings.given:
            yield "Overriding max_threads specification to ensure requested concurrency range."
    names = [tensor.name for tensor in model.inputs]
    for name in settings.input.shapes:
        if name not in names:
            near = nearest_spelling(name, names)
            hint = f"did you mean '{near}'?" if near else f"its inputs are {', '.join(names)}"
            yield f"--shape {name} has no effect: the model has no such input; {hint}"

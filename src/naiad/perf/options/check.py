"""Faults of options that are each readable: combinations that mean nothing. The texts are the reference's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from naiad.perf.load_mode import LoadMode
from naiad.perf.settings import PerfSettings

_SEARCHED = (LoadMode.CONCURRENCY, LoadMode.REQUEST_RATE)


def problems_of(settings: PerfSettings) -> list[str]:
    """The texts of all problems, in the order in which the reference looks for them."""
    return [
        *_of_names(settings),
        *_of_protocol(settings),
        *_of_inputs(settings),
        *_of_periodic(settings),
        *_of_search(settings),
        *_of_counts(settings),
        *_of_service(settings),
        *_of_metrics(settings),
        *_of_later_modes(settings),
    ]


def _of_names(settings: PerfSettings) -> Iterator[str]:
    target, load = settings.target, settings.load
    if target.service_kind == "dynamic_grpc":
        yield (
            "Failed to parse --service-kind. 'dynamic_grpc' is not supported by naiad perf, which has no client for "
            "other gRPC services. The available options are 'triton', 'in_process', 'openai', 'tfserving', or "
            "'torchserve'."
        )
    if not target.model:
        yield "Failed to parse -m (model name). The value must be specified."
    if load.mode is LoadMode.REQUEST_RATE and load.levels.start <= 0:
        yield "Failed to parse --request-rate-range. The start of the search range must be > 0."
    elif load.levels.start <= 0:
        yield "The start of the search range must be > 0"


def _of_protocol(settings: PerfSettings) -> Iterator[str]:
    target = settings.target
    if target.streaming and target.protocol != "grpc" and target.service_kind not in ("in_process", "openai"):
        yield "Streaming is only allowed with gRPC protocol and Triton C API."
    if "grpc-compression-algorithm" in settings.given and target.protocol != "grpc":
        yield "Using compression algorithm is only allowed with gRPC protocol."


def _of_inputs(settings: PerfSettings) -> Iterator[str]:
    if settings.input.paths and settings.input.source == "zero":
        yield "The -z flag cannot be set when --data-directory is provided."
    if {"async", "sync"} <= settings.given:
        yield "Cannot specify --async and --sync simultaneously."
    kind = settings.target.service_kind
    if settings.input.shared_memory != "none" and kind not in ("triton", "in_process"):
        yield f"--shared-memory is only supported with --service-kind=triton and in_process, found {kind}."


def _of_periodic(settings: PerfSettings) -> Iterator[str]:
    if settings.load.mode is LoadMode.PERIODIC_CONCURRENCY:
        if not settings.target.streaming:
            yield "The --periodic-concurrency-range option requires bi-directional gRPC streaming."
        if settings.output.profile_export_file is None:
            yield "Must provide --profile-export-file when using the --periodic-concurrency-range option."
    if settings.target.request_parameters and settings.target.protocol != "grpc":
        yield "The --request-parameter option is currently only supported by gRPC protocol."


def _of_search(settings: PerfSettings) -> Iterator[str]:
    load, levels = settings.load, settings.load.levels
    has_limit = load.latency_limit_ms > 0
    if levels.end == 0 and not has_limit:
        yield ("The end of the search range and the latency limit can not be both 0 (or 0.0) simultaneously")
    if not load.binary_search:
        return
    if levels.end == 0:
        yield "The end of the range can not be 0 (or 0.0) for binary search mode."
    if not has_limit:
        yield "The --latency-threshold cannot be 0 for binary search mode."
    if 0 < levels.end < levels.start:
        yield "The end of the range can not be less than start of the range for binary search mode."
    if load.mode not in _SEARCHED or (levels.end and not levels.is_explicit):
        yield (
            "--binary-search needs a range with both start and end: give --concurrency-range or --request-rate-range "
            "as start:end or start:end:step."
        )


def _of_counts(settings: PerfSettings) -> Iterator[str]:
    total, mode, levels = settings.measure.total_requests, settings.load.mode, settings.load.levels
    if not total or mode not in _SEARCHED:
        return
    what = "concurrency" if mode is LoadMode.CONCURRENCY else "request-rate"
    if total < int(levels.start):
        yield f"request-count can not be less than {what}"
    if levels.start < levels.end:
        yield f"request-count not supported with multiple {what} values in one run"


def _of_service(settings: PerfSettings) -> Iterator[str]:
    kind = settings.target.service_kind
    if kind == "torchserve":
        yield from _of_torchserve(settings)
    elif kind == "in_process":
        yield from _of_in_process(settings)
    elif kind == "openai":
        yield from _of_openai(settings)


def _of_in_process(settings: PerfSettings) -> Iterator[str]:
    if settings.target.model_repository is None:
        yield "--model-repository should not be empty when using service-kind=triton_c_api."
    elif not os.path.isdir(settings.target.model_repository):
        yield f"Failed to parse --model-repository. There is no folder '{settings.target.model_repository}'."
    if settings.target.is_async and settings.target.streaming and settings.input.shared_memory != "none":
        yield (
            "Cannot use --shared-memory=system or --shared-memory=cuda with --service-kind=triton_c_api and --async "
            "and --streaming."
        )


def _of_torchserve(settings: PerfSettings) -> Iterator[str]:
    if not settings.input.paths:
        yield "--input-data should be provided with a json file with input data for torchserve."
    if settings.target.protocol == "grpc":
        yield "perf_analyzer does not support gRPC protocol with TorchServe"
    if settings.input.batch_size != 1:
        yield "-b needs to be 1 for torchserve: a request holds one file, and the server makes the batches."


def _of_openai(settings: PerfSettings) -> Iterator[str]:
    if not settings.input.paths:
        yield "Must supply --input-data for OpenAI service kind."
    if not settings.target.endpoint:
        yield 'Must supply --endpoint for OpenAI service kind. For example, "v1/chat/completions".'
    if settings.target.protocol == "grpc":
        yield "perf_analyzer does not support gRPC protocol with OpenAI endpoints"
    if not settings.target.is_async:
        yield "Only async mode is currently supported for OpenAI service-kind"
    if settings.input.batch_size != 1:
        yield "Batching is not currently supported with OpenAI service-kind"


def _of_metrics(settings: PerfSettings) -> Iterator[str]:
    collects = settings.measure.collect_metrics
    if collects and settings.target.service_kind != "triton":
        yield "Server-side metric collection is only supported with Triton client backend."
    for name in ("metrics-url", "metrics-interval"):
        if name in settings.given and not collects:
            yield f"Must specify --collect-metrics when using the --{name} option."


def _of_later_modes(settings: PerfSettings) -> Iterator[str]:
    mode, paths = settings.load.mode, settings.input.paths
    if mode is LoadMode.SESSION_CONCURRENCY and settings.target.service_kind != "openai":
        yield "Session concurrency mode is only supported with OpenAI service kind."
    if mode is LoadMode.SESSION_CONCURRENCY and not paths:
        yield "When using `--session-concurrency`, you must provide a dataset using `--input-data`."
    if mode is not LoadMode.FIXED_SCHEDULE:
        return
    if settings.measure.total_requests:
        yield (
            "Cannot specify `--request-count` when using `--fixed-schedule`. The request count will be equal to the "
            "number of requests in the input data minus the warmup request count."
        )
    if not paths:
        yield "When using `--fixed-schedule`, you must provide a dataset using `--input-data`."
    for path in paths:
        if not os.path.isfile(path):
            yield (
                f"'{path}' is not a file. When using `--fixed-schedule`, all paths passed to --input-data must be "
                "files."
            )


def warnings_of(settings: PerfSettings, values: Mapping[str, Any]) -> list[str]:
    """Options without effect, or with another one than it seems; ``values`` are those of the options by field."""
    return [*_of_sequences(values), *_of_windows(settings), *_of_no_effect(settings)]


def _of_sequences(values: Mapping[str, Any]) -> Iterator[str]:
    if values.get("load.sequence_length", 1) <= 0:
        yield (
            "The sequence length must be > 0. Perf Analyzer will use default value if it is measuring on sequence "
            "model."
        )
    if values.get("load.sequence_id_range", (1, 0))[0] == 0:
        yield (
            "using an invalid start sequence id. Perf Analyzer will use default value if it is measuring on sequence "
            "model."
        )


def _of_windows(settings: PerfSettings) -> Iterator[str]:
    given, measure = settings.given, settings.measure
    if measure.total_requests:
        why = "with --request-count, whose requests are the only window"
        names: tuple[str, ...] = ("measurement-mode", "measurement-interval", "measurement-request-count", "max-trials")
    elif measure.mode == "count_windows":
        why, names = "with --measurement-mode=count_windows", ("measurement-interval",)
    else:
        why, names = "without --measurement-mode=count_windows", ("measurement-request-count",)
    for name in names:
        if name in given:
            yield f"--{name} has no effect {why}"


def _of_no_effect(settings: PerfSettings) -> Iterator[str]:
    target, load, measure, given = settings.target, settings.load, settings.measure, settings.given
    for name in ("model-signature-name", "tfserving-format"):
        if name in given and target.service_kind != "tfserving":
            yield f"--{name} has no effect: it belongs to --service-kind=tfserving"
    for name in ("input-tensor-format", "output-tensor-format", "bls-composing-models"):
        if name in given and target.service_kind not in ("triton", "in_process"):
            yield f"--{name} has no effect: --service-kind={target.service_kind} has nothing of the kind"
    if "tfserving-format" in given and target.protocol == "grpc":
        yield "--tfserving-format has no effect over gRPC, where requests hold whole tensors"
    if "endpoint" in given and target.service_kind != "openai":
        yield "--endpoint has no effect: it belongs to --service-kind=openai"
    if measure.total_requests and load.mode is LoadMode.SESSION_CONCURRENCY:
        yield "--request-count has no effect with --session-concurrency: each session of --input-data is played once"
    if load.client_workers > 1 and target.service_kind == "in_process":
        yield "--client-workers has no effect with --service-kind=in_process: the model runs in this process alone"
    if "binary-search" in given and not load.binary_search:
        yield "--binary-search has no effect with --request-intervals: there is nothing to search"
    if "request-distribution" in given and load.mode is not LoadMode.REQUEST_RATE:
        yield "--request-distribution has no effect without --request-rate-range"
    if "verbose-csv" in given and settings.output.csv_file is None:
        yield "--verbose-csv has no effect without -f"
    if any(name.startswith("grpc_") for name in target.tls) and not (target.use_tls and target.protocol == "grpc"):
        yield "the options --ssl-grpc-* have no effect without -i grpc and --ssl-grpc-use-ssl"
    if any(name.startswith("https_") for name in target.tls) and not (target.use_tls and target.protocol == "http"):
        yield "the options --ssl-https-* have no effect without an address that begins with https://"

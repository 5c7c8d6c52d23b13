"""What the command line of ``naiad perf`` asks for. Names follow the options; units are in the names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from naiad.perf.load_mode import LoadMode


@dataclass(frozen=True, slots=True)
class Range:
    """A range of load levels: ``start:end:step``, both ends included. An ``end`` of 0 has no end."""

    start: float
    end: float
    step: float
    is_explicit: bool = False
    """Whether the end was written down."""


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Which server is asked, and how.

    Attributes:
        service_kind: triton, in_process, openai, tfserving or torchserve. ``triton`` is every server of the KServe v2
            protocol; ``triton_c_api`` is read as ``in_process``.
        protocol: http or grpc.
        is_async: None when neither ``--async`` nor ``--sync`` was given.
        compression: none, gzip or deflate.
        headers: name and value, in the order of the options.
        request_parameters: typed parameters of every request.
        tfserving_format: row, column or auto, which is row where all inputs have a batch dimension.
        keeps_responses: whether responses are kept for an export; no option of its own.
        tls: the options of TLS by the words of their names, such as ``grpc_root_certifications_file``.
    """

    model: str = ""
    version: str = ""
    service_kind: str = "triton"
    url: str = "localhost:8000"
    protocol: str = "http"
    streaming: bool = False
    is_async: bool | None = None
    headers: tuple[tuple[str, str], ...] = ()
    compression: str = "none"
    request_parameters: dict[str, Any] = field(default_factory=dict)
    use_tls: bool = False
    tls: dict[str, str] = field(default_factory=dict)
    endpoint: str = ""
    model_signature_name: str = "serving_default"
    tfserving_format: str = "auto"
    bls_composing_models: tuple[tuple[str, str], ...] = ()
    model_repository: Path | None = None
    trace: dict[str, str] = field(default_factory=dict)
    keeps_responses: bool = False


@dataclass(frozen=True, slots=True)
class InputSettings:
    """What requests hold.

    Attributes:
        source: zero, random, or empty when ``paths`` says where the data lie.
        shapes: the shapes of inputs by name, without the batch dimension.
        input_format, output_format: binary or json; HTTP only.
        shared_memory: none, system or cuda.
    """

    source: str = "random"
    paths: tuple[Path, ...] = ()
    batch_size: int = 1
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    string_data: str = ""
    string_length: int = 128
    shared_memory: str = "none"
    output_shared_memory_size: int = 102400
    input_format: str = "binary"
    output_format: str = "binary"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """When requests are sent.

    Attributes:
        levels: the range of concurrencies or rates; of one level for the other modes.
        distribution: constant or poisson.
        request_period: responses of a request before the next requests start; periodic concurrency only.
        latency_limit_ms: 0 when there is no limit.
        sequence_id_range: the first id, and the one behind the last; 0 for no end.
        client_workers: how many processes make the load; 0 for as many as turn out to be needed.
    """

    mode: LoadMode = LoadMode.CONCURRENCY
    levels: Range = field(default_factory=lambda: Range(1, 1, 1))
    distribution: str = "constant"
    intervals_file: Path | None = None
    request_period: int = 10
    binary_search: bool = False
    latency_limit_ms: int = 0
    max_threads: int | None = None
    num_of_sequences: int = 4
    sequence_length: int = 20
    sequence_length_variation: float = 20.0
    sequence_id_range: tuple[int, int] = (1, 0)
    serial_sequences: bool = False
    client_workers: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """When a level counts as measured.

    Attributes:
        mode: time_windows or count_windows.
        interval_ms: the length of a time window.
        request_count: requests of a count window.
        total_requests: requests of the only window; 0 when windows repeat until they are stable.
        percentile: the percentile whose latency must settle; None for the average.
        stability_percentage: by how much the last three windows may differ.
        server_pid: a local process that is measured in place of the metrics page; None for none.
    """

    mode: str = "time_windows"
    interval_ms: int = 5000
    request_count: int = 50
    total_requests: int = 0
    warmup_requests: int = 0
    max_trials: int = 10
    percentile: int | None = None
    stability_percentage: float = 10.0
    collect_metrics: bool = True
    metrics_url: str = ""
    metrics_interval_ms: int = 1000
    server_pid: int | None = None


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """Where the results go.

    Attributes:
        verbose: 0, 1 (``-v``) or 2.
        live: whether progress is shown as it goes; None where standard output decides: yes on a terminal.
    """

    csv_file: Path | None = None
    verbose_csv: bool = False
    profile_export_file: Path | None = None
    html_file: Path | None = None
    json_file: Path | None = None
    verbose: int = 0
    live: bool | None = None


@dataclass(frozen=True, slots=True)
class PerfSettings:
    """Everything that one run is asked for.

    Attributes:
        sweep: the values of ``--sweep`` by what they vary.
        compare: the reports to compare; nothing is measured then.
        given: the long names of the options that were given, or the letters of those without one.
        warnings: what to tell the user before the run.
    """

    target: TargetSettings = field(default_factory=TargetSettings)
    input: InputSettings = field(default_factory=InputSettings)
    load: LoadPlan = field(default_factory=LoadPlan)
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    sweep: dict[str, tuple[str, ...]] = field(default_factory=dict)
    compare: tuple[Path, ...] = ()
    given: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdviseSettings:
    """What ``naiad perf advise`` is asked for.

    Attributes:
        perf: how requests are made and sent, and the length of a window; ``load.latency_limit_ms`` is the latency that
            the advice has to keep.
        rounds: how often each configuration is measured.
    """

    perf: PerfSettings
    rounds: int

"""What a measurement found. Durations are in nanoseconds, sizes in bytes, unless a name says otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from naiad.perf.histogram import DurationHistogram
from naiad.perf.load_mode import LoadMode as LoadMode


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """One load: so many requests in flight, or so many a second."""

    mode: LoadMode
    value: float


@dataclass(slots=True)
class ServerParts:
    """What the server counted for one model during the measurement: sums over all of its requests.

    Attributes:
        composing: the same of the steps' models of an ensemble.
    """

    model: str
    version: str
    inferences: int = 0
    executions: int = 0
    successes: int = 0
    failures: int = 0
    request_ns: int = 0
    queue_ns: int = 0
    compute_input_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0
    cache_hits: int = 0
    cache_hit_ns: int = 0
    cache_misses: int = 0
    cache_miss_ns: int = 0
    composing: list[ServerParts] = field(default_factory=list)


@dataclass(slots=True)
class Usage:
    """What the server's machine was busy with: means over the measurement, sizes at their greatest.

    Attributes:
        source: where the figures come from: the address of the metrics page, or ``pid N``.
        cpu_cores: processor time of the server and its children over time passed: 1.5 is one core and a half.
        cpu_us_per_request: processor time of the server and its children for each request.
        gpu_*: by the GPU's UUID.
    """

    source: str = ""
    cpu_cores: float | None = None
    cpu_us_per_request: float | None = None
    rss_bytes: int | None = None
    gpu_utilization: dict[str, float] = field(default_factory=dict)
    gpu_power_watts: dict[str, float] = field(default_factory=dict)
    gpu_memory_used_bytes: dict[str, int] = field(default_factory=dict)
    gpu_memory_total_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ClientUsage:
    """How busy the load generator itself was.

    Attributes:
        cpu_cores: processor time of all of its processes over time passed.
        cores: how many of them could run: processes of the generator, or cores of the machine if fewer.
        cpu_us_per_request: its processor time for each request.
        loop_delay: how long an event that was ready waited until the generator took it.
        is_bottleneck: whether the figures say more about the generator than about the server.
        waited_cores: time in which it could have run while other programs had the processors, over time passed.
        serves: whether the model ran in the generator's process, on the same event loop.
    """

    cpu_cores: float = 0.0
    cores: int = 1
    cpu_us_per_request: float = 0.0
    loop_delay: DurationHistogram = field(default_factory=DurationHistogram)
    is_bottleneck: bool = False
    waited_cores: float = 0.0
    serves: bool = False


@dataclass(slots=True)
class ErrorCount:
    """Failed requests of one kind, with the first cause that was seen.

    Attributes:
        kind: such as ``HTTP 400``, ``gRPC UNAVAILABLE``, ``connection lost``, ``wrong output``.
        message: the server's own words, or what went wrong here.
    """

    kind: str
    message: str
    count: int = 0


@dataclass(slots=True)
class Second:
    """One second of a measurement, for charts.

    Attributes:
        at_s: the second's start, counted from the start of the measurement.
    """

    at_s: float
    requests: int = 0
    errors: int = 0
    p50_us: float = 0.0
    p95_us: float = 0.0
    p99_us: float = 0.0
    cpu_cores: float | None = None
    rss_bytes: int | None = None
    gpu_utilization: float | None = None


@dataclass(slots=True)
class Window:
    """What was completed in one measurement window.

    Attributes:
        began_ns: on the clock of ``time.time_ns``.
        delayed: requests that were sent later than the schedule wanted.
        output_tokens: of language models: as their server counts them, or one for each event of a stream.
        latency: from the send of a request, or from the time at which the schedule wanted it sent, to its last
            response.
        first_response: from the same start to the first response; streams only.
        between_responses: from one response of a request to the next; streams only.
        send_delay: how long after its time of the schedule each request was sent; schedules only.
        send_ns, wait_ns, receive_ns: sums over the requests: from the start of sending to its end, from there to the
            first byte of the response, and from there to its end.
    """

    began_ns: int
    ended_ns: int
    requests: int = 0
    responses: int = 0
    sequences: int = 0
    delayed: int = 0
    sent: int = 0
    output_tokens: int = 0
    latency: DurationHistogram = field(default_factory=DurationHistogram)
    first_response: DurationHistogram = field(default_factory=DurationHistogram)
    between_responses: DurationHistogram = field(default_factory=DurationHistogram)
    send_delay: DurationHistogram = field(default_factory=DurationHistogram)
    send_ns: int = 0
    wait_ns: int = 0
    receive_ns: int = 0
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    server: ServerParts | None = None
    usage: Usage = field(default_factory=Usage)
    client: ClientUsage = field(default_factory=ClientUsage)
    seconds: list[Second] = field(default_factory=list)

    @property
    def duration_s(self) -> float:
        """How long the window was."""
        return (self.ended_ns - self.began_ns) / 1e9

    @property
    def request_rate(self) -> float:
        """Completed requests a second; 0 for a window without a length."""
        return self.requests / self.duration_s if self.ended_ns > self.began_ns else 0.0


@dataclass(slots=True)
class RequestRecord:
    """One request of a profile export. Times are on the clock of ``time.time_ns``.

    Attributes:
        level: the index of its level in ``Report.levels``.
    """

    level: int
    timestamp_ns: int
    response_timestamps_ns: tuple[int, ...]
    sequence_id: int | None = None
    inputs: dict[str, object] = field(default_factory=dict)
    outputs: tuple[dict[str, object], ...] = ()
    is_success: bool = True


@dataclass(slots=True)
class LevelResult:
    """The result of one load level.

    Attributes:
        merged: the three windows that agree with one another, or the best ones when none do, merged.
        windows: every window that was tried, in order.
        unstable_reason: empty for a stable level; else what did not settle, and by how much.
        is_within_limit: False when the latency is over the limit of the search.
    """

    level: LoadLevel
    batch_size: int
    merged: Window
    windows: list[Window] = field(default_factory=list)
    unstable_reason: str = ""
    is_within_limit: bool = True
    notes: list[str] = field(default_factory=list)

    @property
    def inference_rate(self) -> float:
        """Inferences a second: requests a second times the batch size."""
        return self.merged.request_rate * self.batch_size


@dataclass(slots=True)
class Report:
    """All that one run found.

    Attributes:
        machine: name and value of what describes the client's machine: processor, cores, memory, system, versions.
        command: the words of the command line.
        warmup_ns: how long the first response took, which is in no window; None when it was not measured.
        is_async: whether requests were sent without waiting for the responses of earlier ones.
        is_decoupled: whether requests may have any number of responses.
        is_sequence: whether requests belong to sequences.
        is_interrupted: whether the user stopped the run before its end.
        instances: how many instances of the model the server runs; 0 when it does not say.
        usage_missing: why processor time and memory of the server are not known, where nobody asked for them; empty
            where they are.
    """

    levels: list[LevelResult] = field(default_factory=list)
    machine: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    model: str = ""
    version: str = ""
    service_kind: str = "triton"
    protocol: str = "http"
    endpoint: str = ""
    warmup_ns: int | None = None
    is_async: bool = False
    is_decoupled: bool = False
    is_sequence: bool = False
    is_interrupted: bool = False
    instances: int = 0
    usage_missing: str = ""
    records: list[RequestRecord] = field(default_factory=list)

"""Options of ``naiad perf``: when requests are sent, sequences, and when a level counts as measured."""

from __future__ import annotations

from typing import Final

from naiad.perf.load_mode import LoadMode
from naiad.perf.options.kinds import PERCENTILE, choice, existing_file, flag, percent, whole
from naiad.perf.options.option import PerfGroup, PerfOption
from naiad.perf.options.ranges import CONCURRENCY, PERIODIC, RATE, SEQUENCE_IDS, SESSIONS
from naiad.perf.options.values import SWEEP

_POSITIVE: Final = whole(1, "The value must be > 0.")
_POSITIVE_WITHOUT_DOT: Final = whole(1, "The value must be > 0")
_INT64_MAX: Final = 2**63 - 1

MEASUREMENT: Final = (
    PerfOption(
        "measurement-mode",
        "measure.mode",
        choice("time_windows", "count_windows"),
        PerfGroup.MEASUREMENT,
        "Whether windows are as long as --measurement-interval or hold --measurement-request-count requests.",
        default="time_windows",
    ),
    PerfOption(
        "measurement-interval",
        "measure.interval_ms",
        whole(1, "The value must be > 0 msec."),
        PerfGroup.MEASUREMENT,
        "Length of a time window in milliseconds.",
        letter="p",
        default="5000",
    ),
    PerfOption(
        "measurement-request-count",
        "measure.request_count",
        _POSITIVE,
        PerfGroup.MEASUREMENT,
        "Requests in a window with --measurement-mode=count_windows, at least.",
        default="50",
    ),
    PerfOption(
        "stability-percentage",
        "measure.stability_percentage",
        percent(0, "The value must be >= 0.0."),
        PerfGroup.MEASUREMENT,
        "By how many percent the last three windows may differ in rate and latency to count as stable.",
        letter="s",
        default="10",
    ),
    PerfOption(
        "percentile",
        "measure.percentile",
        PERCENTILE,
        PerfGroup.MEASUREMENT,
        "Percentile of the latency, from 1 to 99, that has to be stable and that the summary shows; -1 for the mean.",
        default="-1",
    ),
    PerfOption(
        "max-trials",
        "measure.max_trials",
        _POSITIVE,
        PerfGroup.MEASUREMENT,
        "Windows of a level until it counts as unstable: its best ones are reported then, with the reason.",
        letter="r",
        default="10",
    ),
    PerfOption(
        "warmup-request-count",
        "measure.warmup_requests",
        whole(0, "The value must be >= 0."),
        PerfGroup.MEASUREMENT,
        "Requests before the first window, which are in no figure.",
        default="0",
    ),
    PerfOption(
        "request-count",
        "measure.total_requests",
        whole(0, "The value must be > 0."),
        PerfGroup.MEASUREMENT,
        "Send so many requests and report them as one window; 0 for windows until they are stable.",
        default="0",
    ),
)

LOAD: Final = (
    PerfOption(
        "concurrency-range",
        "load.levels",
        CONCURRENCY,
        PerfGroup.LOAD,
        "Requests in flight: one number, or from start to end by step. An end of 0 goes on until --latency-threshold "
        "is passed.",
        default="1:1:1",
        mode=LoadMode.CONCURRENCY,
    ),
    PerfOption(
        "request-rate-range",
        "load.levels",
        RATE,
        PerfGroup.LOAD,
        "Requests a second, sent by a schedule whether earlier ones are answered or not: one number, or from start to "
        "end by step. An end of 0 goes on until --latency-threshold is passed.",
        mode=LoadMode.REQUEST_RATE,
    ),
    PerfOption(
        "request-distribution",
        "load.distribution",
        choice(
            "constant",
            "poisson",
            refusal="Unsupported type provided: '{text}'. Choices are 'poisson' or 'constant'.",
        ),
        PerfGroup.LOAD,
        "Gaps between the requests of --request-rate-range: equal, or those of a Poisson process.",
        default="constant",
    ),
    PerfOption(
        "request-intervals",
        "load.intervals_file",
        existing_file("The value must be a valid file path"),
        PerfGroup.LOAD,
        "File with one gap between requests in each line, in microseconds; at its end it begins anew.",
        mode=LoadMode.CUSTOM_INTERVALS,
    ),
    PerfOption(
        "periodic-concurrency-range",
        "load.levels",
        PERIODIC,
        PerfGroup.LOAD,
        "Begin with start requests in flight and add step more each time all have --request-period responses, until "
        "end were sent. Needs --streaming over gRPC, a decoupled model and --profile-export-file.",
        mode=LoadMode.PERIODIC_CONCURRENCY,
    ),
    PerfOption(
        "request-period",
        "load.request_period",
        _POSITIVE_WITHOUT_DOT,
        PerfGroup.LOAD,
        "Responses of each request before the next ones of --periodic-concurrency-range are sent.",
        default="10",
    ),
    PerfOption(
        "fixed-schedule",
        "load.mode",
        flag(LoadMode.FIXED_SCHEDULE),
        PerfGroup.LOAD,
        "Send each request of the JSON files of --input-data once, at its timestamp in milliseconds.",
        mode=LoadMode.FIXED_SCHEDULE,
        is_newer=True,
    ),
    PerfOption(
        "session-concurrency",
        "load.levels",
        SESSIONS,
        PerfGroup.LOAD,
        "Play the chat sessions of --input-data once, so many at a time: each turn is sent with all that was said "
        "before, once the one before it has its response and its delay is over. --service-kind=openai only.",
        mode=LoadMode.SESSION_CONCURRENCY,
        is_newer=True,
    ),
    PerfOption(
        "latency-threshold",
        "load.latency_limit_ms",
        whole(0, "The value must be >= 0 msecs."),
        PerfGroup.LOAD,
        "End the search at the first level whose latency is above so many milliseconds; 0 for no limit.",
        letter="l",
        default="0",
    ),
    PerfOption(
        "binary-search",
        "load.binary_search",
        flag(),
        PerfGroup.LOAD,
        "Look for the highest level within --latency-threshold by halving the range, down to its step. The range "
        "needs its start and end.",
    ),
    PerfOption(
        "max-threads",
        "load.max_threads",
        _POSITIVE,
        PerfGroup.LOAD,
        "Bound of the requests in flight where --concurrency-range has no end and neither --async nor --streaming is "
        "given. Else it has no effect: one loop sends all requests.",
        default="16",
    ),
    PerfOption(
        "sweep",
        "sweep",
        SWEEP,
        PerfGroup.LOAD,
        "Measure every combination of values and show them in one table: shape=3x224x224,3x448x448,batch=1,8. A shape "
        "may name its input, INPUT0:3x224x224, and + joins those of several.",
        is_newer=True,
    ),
    PerfOption(
        "client-workers",
        "load.client_workers",
        whole(0, "The value must be >= 0."),
        PerfGroup.LOAD,
        "Processes that send the requests; 0 for as many as turn out to be needed.",
        default="1",
        is_newer=True,
    ),
    PerfOption(
        "seed",
        "load.seed",
        whole(0, "The value must be >= 0."),
        PerfGroup.LOAD,
        "Seed of random data, gaps and lengths of sequences: the same seed sends the same.",
        default="0",
        is_newer=True,
    ),
)

SEQUENCES: Final = (
    PerfOption(
        "num-of-sequences",
        "load.num_of_sequences",
        _POSITIVE,
        PerfGroup.SEQUENCES,
        "Sequences at a time with --request-rate-range and --request-intervals.",
        default="4",
    ),
    PerfOption(
        "sequence-length",
        "load.sequence_length",
        whole(-_INT64_MAX, ""),
        PerfGroup.SEQUENCES,
        "Requests in a sequence; with --input-data as many as its stream has, unless this option is given.",
        default="20",
    ),
    PerfOption(
        "sequence-length-variation",
        "load.sequence_length_variation",
        percent(0, "The value must be >= 0.0."),
        PerfGroup.SEQUENCES,
        "By how many percent the lengths of sequences differ from --sequence-length.",
        default="20",
    ),
    PerfOption(
        "sequence-id-range",
        "load.sequence_id_range",
        SEQUENCE_IDS,
        PerfGroup.SEQUENCES,
        "First id of the sequences, and the one behind the last; without an end no id is used twice.",
        default="1",
    ),
    PerfOption(
        "serial-sequences",
        "load.serial_sequences",
        flag(),
        PerfGroup.SEQUENCES,
        "Send the next request of a sequence once the last is answered.",
    ),
)

"""Options of ``naiad perf``: what requests hold, what is collected, and where the results go."""

from __future__ import annotations

from typing import Final

from naiad.perf.options.kinds import PATH, TEXT, choice, flag, new_file, read_integer, whole, whole_text
from naiad.perf.options.option import PerfGroup, PerfOption
from naiad.perf.options.ranges import COUNT
from naiad.perf.options.values import INPUT_SOURCE, PROCESS, SHAPE, SHARED_MEMORY

_TENSOR_FORMAT: Final = choice("binary", "json", ignore_case=True)


def _read_trace_count(text: str) -> str:
    if read_integer(text) < -1:
        raise ValueError("The value must be >= 0 or set to -1 (default).")
    return text


def _read_log_frequency(text: str) -> str:
    if read_integer(text) < 0:
        raise ValueError("The value must be >= 0.")
    return text


def _read_trace_rate(text: str) -> str:
    if read_integer(text) <= 0:
        raise ValueError("The value must be > 0.")
    return text


INPUT: Final = (
    PerfOption(
        "input-data",
        "input.source",
        INPUT_SOURCE,
        PerfGroup.INPUT,
        "What requests hold: random data, zeros, or those of a JSON file or of a folder with a file for each input.",
        default="random",
        is_repeatable=True,
    ),
    PerfOption(
        "",
        "input.batch_size",
        whole(1, "The value must be > 0."),
        PerfGroup.INPUT,
        "Batch size of each request.",
        letter="b",
        title="-b (batch size)",
        default="1",
    ),
    PerfOption(
        "shape",
        "input.shapes",
        SHAPE,
        PerfGroup.INPUT,
        "Shape of an input, without the batch size: INPUT0:3,224,224. Inputs of variable shapes need it.",
        is_repeatable=True,
    ),
    PerfOption("string-data", "input.string_data", TEXT, PerfGroup.INPUT, "Text for all elements of BYTES inputs."),
    PerfOption(
        "string-length",
        "input.string_length",
        whole(1, "The value must be > 0"),
        PerfGroup.INPUT,
        "Length of the random texts of BYTES inputs.",
        default="128",
    ),
    PerfOption(
        "shared-memory",
        "input.shared_memory",
        SHARED_MEMORY,
        PerfGroup.INPUT,
        "Shared memory for inputs and outputs; the server has to run on this machine. cuda needs a GPU.",
        default="none",
    ),
    PerfOption(
        "output-shared-memory-size",
        "input.output_shared_memory_size",
        whole(0, "The value must be >= 0."),
        PerfGroup.INPUT,
        "Bytes of shared memory for each output whose size is not known before, for each item of a batch.",
        default="102400",
    ),
    PerfOption(
        "input-tensor-format",
        "input.input_format",
        _TENSOR_FORMAT,
        PerfGroup.INPUT,
        "Form of the inputs in HTTP requests.",
        default="binary",
    ),
    PerfOption(
        "output-tensor-format",
        "input.output_format",
        _TENSOR_FORMAT,
        PerfGroup.INPUT,
        "Form of the outputs in HTTP responses.",
        default="binary",
    ),
)

METRICS: Final = (
    PerfOption(
        "collect-metrics",
        "measure.collect_metrics",
        flag(True),
        PerfGroup.METRICS,
        "Collect processor time and memory of the server, and the GPU's figures, from its metrics. On by default, "
        "where the server has them; with this option a server without them is an error.",
    ),
    PerfOption(
        "no-collect-metrics",
        "measure.collect_metrics",
        flag(False),
        PerfGroup.METRICS,
        "Do not read the server's metrics.",
        is_newer=True,
    ),
    PerfOption(
        "metrics-url",
        "measure.metrics_url",
        TEXT,
        PerfGroup.METRICS,
        "Address of the metrics. Without it the host of -u with :8002/metrics.",
        default="localhost:8002/metrics",
    ),
    PerfOption(
        "metrics-interval",
        "measure.metrics_interval_ms",
        whole(1, "The value must be > 0 msecs."),
        PerfGroup.METRICS,
        "Milliseconds between two readings of the metrics.",
        default="1000",
    ),
    PerfOption(
        "server-pid",
        "measure.server_pid",
        PROCESS,
        PerfGroup.METRICS,
        "Local process that is measured, with its children, in place of the metrics.",
        is_newer=True,
    ),
)

REPORT: Final = (
    PerfOption(
        "",
        "output.csv_file",
        new_file(),
        PerfGroup.REPORT,
        "CSV file with a row for each level; ensembles have one more for each step.",
        letter="f",
    ),
    PerfOption("verbose-csv", "output.verbose_csv", flag(), PerfGroup.REPORT, "More columns in the CSV file."),
    PerfOption(
        "profile-export-file",
        "output.profile_export_file",
        new_file(may_exist=False),
        PerfGroup.REPORT,
        "JSON file with the times of every request; it must not exist yet.",
    ),
    PerfOption(
        "json",
        "output.json_file",
        new_file(),
        PerfGroup.REPORT,
        "JSON file with everything that was found, which --compare reads.",
        is_newer=True,
    ),
    PerfOption(
        "html",
        "output.html_file",
        new_file(),
        PerfGroup.REPORT,
        "HTML file with charts, which needs nothing else.",
        is_newer=True,
    ),
    PerfOption(
        "live",
        "output.live",
        flag(True),
        PerfGroup.REPORT,
        "Show progress as it goes. Without this option a terminal gets it, and a pipe does not.",
        is_newer=True,
    ),
    PerfOption("no-live", "output.live", flag(False), PerfGroup.REPORT, "Do not show progress.", is_newer=True),
    PerfOption(
        "compare",
        "compare",
        PATH,
        PerfGroup.REPORT,
        "Measure nothing: compare the JSON files of earlier runs, which follow. Of the other options only --html, "
        "--json, -f and -v go with it.",
        is_repeatable=True,
        is_newer=True,
    ),
)

TRACE: Final = (
    PerfOption(
        "trace-level",
        "target.trace.trace_level",
        choice("OFF", "TIMESTAMPS", "TENSORS"),
        PerfGroup.TRACE,
        "What the server traces during the measurement.",
        default="OFF",
        is_repeatable=True,
    ),
    PerfOption(
        "trace-rate",
        "target.trace.trace_rate",
        whole_text(_read_trace_rate, "<n>"),
        PerfGroup.TRACE,
        "Of so many requests the server traces one.",
        default="1000",
    ),
    PerfOption(
        "trace-count",
        "target.trace.trace_count",
        whole_text(_read_trace_count, "<n>"),
        PerfGroup.TRACE,
        "How many traces the server makes; -1 for no limit.",
        default="-1",
    ),
    PerfOption(
        "log-frequency",
        "target.trace.log_frequency",
        whole_text(_read_log_frequency, "<n>"),
        PerfGroup.TRACE,
        "After how many traces the server begins a new file; 0 for one file at its end.",
        default="0",
    ),
)


def _deprecated(name: str, instead: str) -> str:
    return f"{name} is deprecated and will be removed in an upcoming version. Use {instead} instead."


DEPRECATED: Final = (
    PerfOption(
        "data-directory",
        "input.source",
        INPUT_SOURCE,
        PerfGroup.DEPRECATED,
        "Use --input-data.",
        is_repeatable=True,
        remark=_deprecated("--data-directory", "--input-data"),
    ),
    PerfOption(
        "",
        "input.source",
        flag("zero"),
        PerfGroup.DEPRECATED,
        "Use --input-data=zero.",
        letter="z",
        is_repeatable=True,
        remark=_deprecated("-z", "--input-data=zero"),
    ),
    PerfOption(
        "",
        "start",
        COUNT,
        PerfGroup.DEPRECATED,
        "Requests in flight. Use --concurrency-range.",
        letter="t",
        default="1",
        remark=_deprecated("-t", "--concurrency-range"),
    ),
    PerfOption(
        "",
        "end",
        COUNT,
        PerfGroup.DEPRECATED,
        "End of the search of -d. Use --concurrency-range.",
        letter="c",
        remark=_deprecated("-c", "--concurrency-range"),
    ),
    PerfOption(
        "",
        "search",
        flag(),
        PerfGroup.DEPRECATED,
        "Search from -t to -c requests in flight. Use --concurrency-range.",
        letter="d",
        remark=_deprecated("-d", "--concurrency-range"),
    ),
)

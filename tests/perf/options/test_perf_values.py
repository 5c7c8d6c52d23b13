"""The value of every option of ``naiad perf`` lands in its field of the settings, however it is written."""

from __future__ import annotations

import os
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from naiad.perf.load_mode import LoadMode
from naiad.perf.options import OPTIONS, PerfOption, parse_perf
from naiad.perf.settings import PerfSettings, Range

GRPC = ("-i", "grpc")
STREAMING = (*GRPC, "--streaming")
TFSERVING = ("--service-kind=tfserving",)
WITH_METRICS = ("--metrics-url=host:1/metrics",)
FILES = ("data.json", "key.pem", "gaps.txt")


class Case(NamedTuple):
    """A value as text, the field that it lands in, the value there, and what else the option needs."""

    text: str
    field: str
    value: Any
    beside: tuple[str, ...] = ()


FLAGS = {
    "v": Case("", "output.verbose", 1),
    "async": Case("", "target.is_async", True),
    "sync": Case("", "target.is_async", False),
    "streaming": Case("", "target.streaming", True, GRPC),
    "fixed-schedule": Case("", "load.mode", LoadMode.FIXED_SCHEDULE, ("--input-data=data.json",)),
    "binary-search": Case("", "load.binary_search", True, ("--concurrency-range=1:8", "-l", "9")),
    "serial-sequences": Case("", "load.serial_sequences", True),
    "collect-metrics": Case("", "measure.collect_metrics", True, ("--no-collect-metrics",)),
    "no-collect-metrics": Case("", "measure.collect_metrics", False),
    "verbose-csv": Case("", "output.verbose_csv", True),
    "live": Case("", "output.live", True),
    "no-live": Case("", "output.live", False),
    "ssl-grpc-use-ssl": Case("", "target.use_tls", True),
    "z": Case("", "input.source", "zero"),
    "d": Case("", "load.levels", Range(1, 0, 1), ("-l", "9")),
}
VALUES = {
    "m": Case("resnet", "target.model", "resnet"),
    "x": Case("3", "target.version", "3"),
    "service-kind": Case("tfserving", "target.service_kind", "tfserving"),
    "endpoint": Case("v1/chat/completions", "target.endpoint", "v1/chat/completions"),
    "bls-composing-models": Case("a:3, b", "target.bls_composing_models", (("a", "3"), ("b", ""))),
    "model-signature-name": Case("other", "target.model_signature_name", "other", TFSERVING),
    "tfserving-format": Case("column", "target.tfserving_format", "column", TFSERVING),
    "measurement-mode": Case("count_windows", "measure.mode", "count_windows"),
    "measurement-interval": Case("15000", "measure.interval_ms", 15000),
    "measurement-request-count": Case("70", "measure.request_count", 70),
    "stability-percentage": Case("2.5", "measure.stability_percentage", 2.5),
    "percentile": Case("95", "measure.percentile", 95),
    "max-trials": Case("1", "measure.max_trials", 1),
    "warmup-request-count": Case("7", "measure.warmup_requests", 7),
    "request-count": Case("100", "measure.total_requests", 100),
    "concurrency-range": Case("1:4", "load.levels", Range(1, 4, 1, is_explicit=True)),
    "request-rate-range": Case("1.5:4:0.5", "load.levels", Range(1.5, 4, 0.5, is_explicit=True)),
    "request-distribution": Case("poisson", "load.distribution", "poisson"),
    "request-intervals": Case("gaps.txt", "load.intervals_file", Path("gaps.txt")),
    "periodic-concurrency-range": Case(
        "1:7:2", "load.levels", Range(1, 7, 2, is_explicit=True), (*STREAMING, "--profile-export-file=new.json")
    ),
    "request-period": Case("3", "load.request_period", 3),
    "session-concurrency": Case(
        "5",
        "load.levels",
        Range(5, 5, 1),
        ("--service-kind=openai", "--endpoint=v1/chat/completions", "--input-data=data.json", "--async"),
    ),
    "latency-threshold": Case("20", "load.latency_limit_ms", 20),
    "max-threads": Case("32", "load.max_threads", 32),
    "sweep": Case("shape=A:3x4,5,batch=1,8", "sweep", {"shape": ("A:3x4", "5"), "batch": ("1", "8")}),
    "client-workers": Case("2", "load.client_workers", 2),
    "seed": Case("42", "load.seed", 42),
    "num-of-sequences": Case("9", "load.num_of_sequences", 9),
    "sequence-length": Case("30", "load.sequence_length", 30),
    "sequence-length-variation": Case("0", "load.sequence_length_variation", 0.0),
    "sequence-id-range": Case("5:50", "load.sequence_id_range", (5, 50)),
    "input-data": Case("data.json", "input.paths", (Path("data.json"),)),
    "b": Case("4", "input.batch_size", 4),
    "shape": Case("a:b:3,224", "input.shapes", {"a:b": (3, 224)}),
    "string-data": Case("hello", "input.string_data", "hello"),
    "string-length": Case("64", "input.string_length", 64),
    "shared-memory": Case("system", "input.shared_memory", "system"),
    "output-shared-memory-size": Case("0", "input.output_shared_memory_size", 0),
    "input-tensor-format": Case("JSON", "input.input_format", "json"),
    "output-tensor-format": Case("json", "input.output_format", "json"),
    "i": Case("gRPC", "target.protocol", "grpc"),
    "H": Case("Name: a:b", "target.headers", (("Name", "a:b"),)),
    "request-parameter": Case("max_tokens:256:int", "target.request_parameters", {"max_tokens": 256}, GRPC),
    "grpc-compression-algorithm": Case("gzip", "target.compression", "gzip", GRPC),
    "u": Case("https://host:1", "target.url", "https://host:1"),
    "model-repository": Case(".", "target.model_repository", Path()),
    "ssl-https-verify-peer": Case("0", "target.tls", {"https_verify_peer": "0"}),
    "ssl-https-verify-host": Case("1", "target.tls", {"https_verify_host": "1"}),
    "ssl-https-client-certificate-type": Case("DER", "target.tls", {"https_client_certificate_type": "DER"}),
    "ssl-https-private-key-type": Case("DER", "target.tls", {"https_private_key_type": "DER"}),
    **{
        f"ssl-{name}": Case("key.pem", "target.tls", {name.replace("-", "_"): "key.pem"})
        for name in (
            "grpc-root-certifications-file",
            "grpc-private-key-file",
            "grpc-certificate-chain-file",
            "https-ca-certificates-file",
            "https-client-certificate-file",
            "https-private-key-file",
        )
    },
    "metrics-url": Case("host:1/metrics", "measure.metrics_url", "host:1/metrics"),
    "metrics-interval": Case("500", "measure.metrics_interval_ms", 500),
    "server-pid": Case(str(os.getpid()), "measure.server_pid", os.getpid()),
    "f": Case("new.csv", "output.csv_file", Path("new.csv")),
    "profile-export-file": Case("new.json", "output.profile_export_file", Path("new.json")),
    "json": Case("data.json", "output.json_file", Path("data.json")),
    "html": Case("new.html", "output.html_file", Path("new.html")),
    "trace-level": Case("TIMESTAMPS", "target.trace", {"trace_level": "TIMESTAMPS"}),
    "trace-rate": Case("5", "target.trace", {"trace_rate": "5"}),
    "trace-count": Case("-1", "target.trace", {"trace_count": "-1"}),
    "log-frequency": Case("9", "target.trace", {"log_frequency": "9"}),
    "data-directory": Case(".", "input.paths", (Path(),)),
    "t": Case("4", "load.levels", Range(4, 4, 1)),
    "c": Case("8", "load.levels", Range(1, 8, 1, is_explicit=True), ("-d", "-l", "9")),
}
WITHOUT_A_FIELD = {
    # Modes and words of their own, which other tests have.
    "compare",
    # Refused, or read without effect.
    "enable-mpi",
    "grpc-method",
    "proto",
    "triton-server-directory",
}
# The deprecated ones; and ``collect-metrics``, which is on without it.
WITHOUT_A_VARIABLE = {"z", "d", "t", "c", "data-directory", "collect-metrics"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with the files that the cases name."""
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).write_text("1\n")


def of_key(key: str) -> PerfOption:
    return next(option for option in OPTIONS if option.key == key)


def at(settings: PerfSettings, field: str) -> Any:
    return reduce(getattr, field.split("."), settings)


def parsed(*words: str, **environ: str) -> PerfSettings:
    return parse_perf(["-m", "model", *words], environ)


def test_every_option_has_a_case() -> None:
    assert {option.key for option in OPTIONS} == FLAGS.keys() | VALUES.keys() | WITHOUT_A_FIELD


@pytest.mark.parametrize("key", VALUES)
def test_a_value_lands_in_its_field(key: str) -> None:
    text, field, value, beside = VALUES[key]
    option = of_key(key)
    written = [[f"--{option.name}={text}"], [f"--{option.name}", text]] if option.name else []
    written += [[f"-{option.letter}{text}"], [f"-{option.letter}", text]] if option.letter else []
    for words in written:
        assert at(parsed(*beside, *words), field) == value, words
    assert at(parsed(*beside), field) != value


@pytest.mark.parametrize("key", FLAGS)
def test_a_flag_lands_in_its_field(key: str) -> None:
    _, field, value, beside = FLAGS[key]
    for word in of_key(key).flags:
        assert at(parsed(*beside, word), field) == value, word


@pytest.mark.parametrize("key", sorted({*VALUES, *FLAGS} - WITHOUT_A_VARIABLE))
def test_a_variable_of_the_environment_lands_in_its_field(key: str) -> None:
    text, field, value, beside = {**VALUES, **FLAGS}[key]
    words = [*beside] if key == "m" else ["-m", "model", *beside]
    assert at(parse_perf(words, {of_key(key).variable: text or "true"}), field) == value


def test_the_command_line_wins_over_the_environment() -> None:
    assert not parsed("--no-collect-metrics", NAIAD_PERF_COLLECT_METRICS="true").measure.collect_metrics
    assert parsed("--percentile=95", NAIAD_PERF_PERCENTILE="wrong").measure.percentile == 95


def test_a_load_mode_of_the_environment_yields_to_one_of_the_command_line() -> None:
    got = parsed("--request-rate-range=5", NAIAD_PERF_CONCURRENCY_RANGE="1:4")
    assert (got.load.mode, got.load.levels) == (LoadMode.REQUEST_RATE, Range(5, 5, 1))
    assert parsed("-t2", NAIAD_PERF_CONCURRENCY_RANGE="1:4").load.levels == Range(2, 2, 1)


def test_several_values_of_a_variable_and_flags_that_are_off() -> None:
    got = parsed(NAIAD_PERF_HEADERS="A:1;B:2", NAIAD_PERF_STREAMING="false", NAIAD_PERF_PERCENTILE="")
    assert (got.target.headers, got.target.streaming, got.measure.percentile) == ((("A", "1"), ("B", "2")), False, None)


def test_defaults() -> None:
    assert parsed() == parse_perf(["-mmodel"], {})
    got = parsed()
    assert (got.target.url, got.target.protocol, got.target.is_async) == ("localhost:8000", "http", None)
    assert (got.load.mode, got.load.levels) == (LoadMode.CONCURRENCY, Range(1, 1, 1))
    assert (got.input.source, got.input.paths, got.input.batch_size) == ("random", (), 1)
    assert got.measure.collect_metrics
    assert got.measure.metrics_url == "localhost:8002/metrics"
    assert (got.given, got.warnings, got.sweep, got.compare) == ({"m"}, (), {}, ())


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        (["--concurrency-range=2"], LoadMode.CONCURRENCY),
        (["--request-rate-range=2"], LoadMode.REQUEST_RATE),
        (["--request-intervals=gaps.txt"], LoadMode.CUSTOM_INTERVALS),
        ([*STREAMING, "--profile-export-file=n", "--periodic-concurrency-range=1:2"], LoadMode.PERIODIC_CONCURRENCY),
        ([*VALUES["session-concurrency"].beside, "--session-concurrency=1"], LoadMode.SESSION_CONCURRENCY),
    ],
)
def test_load_modes(words: list[str], mode: LoadMode) -> None:
    assert parsed(*words).load.mode is mode


@pytest.mark.parametrize(
    ("words", "levels"),
    [
        (["--concurrency-range", "8"], Range(8, 8, 1)),
        (["--concurrency-range=1:16:5"], Range(1, 16, 5, is_explicit=True)),
        (["--concurrency-range=1:0", "-l5"], Range(1, 0, 1, is_explicit=True)),
        (["--concurrency-range=8:4"], Range(8, 8, 1, is_explicit=True)),
        (["--request-rate-range=1e3"], Range(1000, 1000, 1)),
        (["--request-rate-range=2:0.0:3", "-l5"], Range(2, 0, 3, is_explicit=True)),
        (["-d", "-c", "8", "-t2"], Range(2, 8, 1, is_explicit=True)),
        (["-c", "8"], Range(1, 1, 1)),
        # Of two the last one counts, as in the reference.
        (["--concurrency-range=1", "--concurrency-range=1:4"], Range(1, 4, 1, is_explicit=True)),
    ],
)
def test_ranges(words: list[str], levels: Range) -> None:
    assert parsed(*words).load.levels == levels


@pytest.mark.parametrize(
    ("words", "url", "metrics_url"),
    [
        ([], "localhost:8000", "localhost:8002/metrics"),
        (["-i", "grpc"], "localhost:8001", "localhost:8002/metrics"),
        (["--service-kind=tfserving"], "localhost:8501", "localhost:8002/metrics"),
        (["--service-kind=tfserving", "-i", "grpc"], "localhost:8500", "localhost:8002/metrics"),
        (["--service-kind=torchserve", "--input-data=data.json"], "localhost:8080", "localhost:8002/metrics"),
        (["-u", "gpu1:9000"], "gpu1:9000", "gpu1:8002/metrics"),
        (["-u", "https://gpu1:9000/path"], "https://gpu1:9000/path", "gpu1:8002/metrics"),
        (["-u", "[::1]:9000", "-i", "grpc"], "[::1]:9000", "[::1]:8002/metrics"),
        (["-u", "::1"], "::1", "[::1]:8002/metrics"),
    ],
)
def test_addresses(words: list[str], url: str, metrics_url: str) -> None:
    got = parsed(*words)
    assert (got.target.url, got.measure.metrics_url) == (url, metrics_url)


def test_https_turns_tls_on_and_false_leaves_it_off() -> None:
    assert parsed("-u", "https://host:1").target.use_tls
    assert not parsed("-u", "http://host:1").target.use_tls
    assert not parsed("--ssl-grpc-use-ssl=false").target.use_tls


def test_repeated_options() -> None:
    got = parsed(
        *("-H", "A:1", "-H", "A:2", "--shape=a:1", "--shape", "b:2,3", "--input-data=data.json", "--input-data=."),
        *("--trace-level=TIMESTAMPS", "--trace-level=TENSORS", "-v", "-v", "-v", *GRPC),
        *("--request-parameter=a:TRUE:Bool", "--request-parameter=b:x:string"),
    )
    assert got.target.headers == (("A", "1"), ("A", "2"))
    assert got.input.shapes == {"a": (1,), "b": (2, 3)}
    assert (got.input.source, got.input.paths) == ("", (Path("data.json"), Path()))
    assert got.target.trace == {"trace_level": "TIMESTAMPS,TENSORS"}
    assert got.output.verbose == 2
    assert got.target.request_parameters == {"a": True, "b": "x"}


def test_a_seed_counts_for_data_and_load() -> None:
    assert (parsed("--seed=3").input.seed, parsed("--seed=3").load.seed) == (3, 3)


def test_a_number_of_requests_is_one_window() -> None:
    got = parsed("--request-count=500", "--concurrency-range=8").measure
    assert (got.mode, got.request_count, got.total_requests) == ("count_windows", 500, 500)
    assert parsed("--request-count=0").measure.mode == "time_windows"


def test_a_percentile_of_minus_one_is_the_mean() -> None:
    assert parsed("--percentile", "-1").measure.percentile is None


def test_another_name_of_in_process() -> None:
    assert parsed("--service-kind=triton_c_api", "--model-repository=.").target.service_kind == "in_process"


def test_other_services_have_no_metrics_of_this_form() -> None:
    assert not parsed("--service-kind=tfserving").measure.collect_metrics


def test_runs_are_compared_in_the_order_of_their_files() -> None:
    for name in ("A.json", "B.json", "C.json"):
        Path(name).write_text("{}")
    got = parse_perf(["--compare", "A.json", "B.json", "C.json", "--html=out.html"], {"NAIAD_PERF_URL": "host:1"})
    assert got.compare == (Path("A.json"), Path("B.json"), Path("C.json"))
    assert got.output.html_file == Path("out.html")
    got = parse_perf(["--compare=B.json", "--compare", "A.json"], {})
    assert got.compare == (Path("B.json"), Path("A.json"))

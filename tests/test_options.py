"""The options: what a command line and the environment come to, and what is said about bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.backends import registry
from naiad.errors import OptionError
from naiad.options import (
    INT32_MAX,
    OPTIONS,
    Group,
    ServerOptions,
    check_help,
    option_rows,
    option_table_markdown,
    parse,
    parse_check,
    serve_help,
    wants_help,
)
from naiad.options.backend_settings import BACKENDS, SETTINGS
from naiad.options.reference import OWN
from naiad.options.trace_config import TraceSetting
from naiad.processes.affinity import Affinity

REPOSITORY = "--model-repository=models"


def options(*argv: str, **environ: str) -> ServerOptions:
    return parse([REPOSITORY, *argv], environ)


def problems(*argv: str, **environ: str) -> list[str]:
    with pytest.raises(OptionError) as caught:
        parse([REPOSITORY, *argv], environ)
    return str(caught.value).splitlines()


def test_defaults_are_those_of_the_reference() -> None:
    got = options()
    assert got.model_repository == (Path("models"),)
    assert (got.id, got.exit_timeout_secs, got.exit_on_error, got.strict_readiness) == ("triton", 30, True, True)
    assert (got.http_address, got.http_port, got.http_max_input_size) == ("0.0.0.0", 8000, 67108864)
    assert (got.metrics_address, got.metrics_port, got.metrics_interval_ms) == ("0.0.0.0", 8002, 2000)
    assert (got.log_verbose, got.log_format, got.log_file) == (0, "default", "")
    assert (got.allow_http, got.allow_metrics, got.allow_cpu_metrics, got.counter_latencies) == (True,) * 4
    assert got.warnings == ()


def test_defaults_of_grpc_are_those_of_the_reference() -> None:
    got = options()
    assert (got.allow_grpc, got.grpc_address, got.grpc_port, got.reuse_grpc_port) == (True, "0.0.0.0", 8001, False)
    assert (got.grpc_use_ssl, got.grpc_use_ssl_mutual) == (False, False)
    assert (got.grpc_server_cert, got.grpc_server_key, got.grpc_root_cert) == ("", "", "")
    assert (got.grpc_infer_thread_count, got.grpc_infer_allocation_pool_size) == (2, 8)
    assert got.grpc_infer_response_compression_level == "none"
    assert got.grpc_max_response_pool_size == INT32_MAX
    assert (got.grpc_keepalive_time, got.grpc_keepalive_timeout) == (7_200_000, 20_000)
    assert got.grpc_keepalive_permit_without_calls is False
    assert (got.grpc_http2_max_pings_without_data, got.grpc_http2_max_ping_strikes) == (2, 2)
    assert got.grpc_http2_min_recv_ping_interval_without_data == 300_000
    assert (got.grpc_max_connection_age, got.grpc_max_connection_age_grace) == (INT32_MAX, INT32_MAX)
    assert (got.http_port_serves_grpc, got.grpc_transport, got.grpc_max_input_size) == (False, "naiad", INT32_MAX)
    assert got.serves_grpc


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--grpc-port", "9001"], "grpc_port", 9001),
        (["--grpc-address=ipv6:[::1]"], "grpc_address", "::1"),
        (["--reuse-grpc-port=on"], "reuse_grpc_port", True),
        (["--grpc-infer-thread-count=128"], "grpc_infer_thread_count", 128),
        (["--grpc-infer-response-compression-level=HIGH"], "grpc_infer_response_compression_level", "high"),
        (["--grpc-keepalive-permit-without-calls=1"], "grpc_keepalive_permit_without_calls", True),
        (["--grpc-max-connection-age=5000"], "grpc_max_connection_age", 5000),
        (["--grpc-max-connection-age-grace=0"], "grpc_max_connection_age_grace", 0),
        (
            ["--grpc-use-ssl-mutual=1", "--grpc-server-cert=c", "--grpc-server-key=k", "--grpc-root-cert=r"],
            "grpc_use_ssl",
            True,
        ),
        (["--allow-grpc=false", "--grpc-use-ssl=true"], "grpc_use_ssl", True),
        (["--allow-grpc=0"], "serves_grpc", False),
        (["--allow-grpc=0", "--http-port-serves-grpc=1"], "serves_grpc", True),
        (["--http-port=9000"], "http_port", 9000),
        # Our own options stand back where an abbreviation is one of the reference's.
        (["--http-po=9000"], "http_port", 9000),
        (["--model-repo", "there"], "model_repository", (Path("models"), Path("there"))),
        (["--overload-s=429"], "overload_status", "429"),
        (["--http-port", "9000"], "http_port", 9000),
        (["--http-port", "1", "--http-port=2"], "http_port", 2),
        (["--http-port=0"], "http_port", 0),
        (["--http-port=65535"], "http_port", 65535),
        (["--id=a=b"], "id", "a=b"),
        (["--id="], "id", ""),
        (["--exit-timeout-secs=-5"], "exit_timeout_secs", 0),
        (["--exit-timeout-secs", "-5"], "exit_timeout_secs", 0),
        (["--exit-timeout-secs=+7"], "exit_timeout_secs", 7),
        (["--disable-auto-complete-config"], "disable_auto_complete_config", True),
        (["--strict-model-config=true"], "disable_auto_complete_config", True),
        (["--strict-model-config=false"], "disable_auto_complete_config", False),
        (["--model-control-mode=NONE"], "model_control_mode", "none"),
        (["--model-control-mode=Explicit"], "model_control_mode", "explicit"),
        (["--model-control-mode=POLL"], "model_control_mode", "poll"),
        (["--model-control-mode=poll"], "repository_poll_secs", 15),
        (["--model-control-mode=poll", "--repository-poll-secs=0"], "polls", False),
        (["--repository-poll-secs=3"], "repository_poll_secs", 0),
        (["--model-load-retry-count=3"], "model_load_retry_count", 3),
        (["--model-load-thread-count=0"], "model_load_thread_count", 1),
        (["--metrics-interval-ms=1500.5"], "metrics_interval_ms", 1500),
        (["--buffer-manager-thread-count=-1"], "buffer_manager_thread_count", -1),
        (["--rate-limit=Execution_Count"], "rate_limit", "execution_count"),
        (["--trace-config=mode=OpenTelemetry"], "trace_config", (TraceSetting("mode", "opentelemetry"),)),
        (["--trace-config=Triton,file=f"], "trace_config", (TraceSetting("trace_file", "f"),)),
        (
            ["--model-control-mode=explicit", "--load-model", "a", "--load-model=b"],
            "load_model",
            ("a", "b"),
        ),
        (["--log-verbose=3"], "log_verbose", 3),
        (["--log-verbose=true"], "log_verbose", 1),
        (["--log-verbose=Off"], "log_verbose", 0),
        (["--log-format=ISO8601"], "log_format", "ISO8601"),
        (["--http-address=ipv6:[::1]"], "http_address", "::1"),
        (["--http-address=::1"], "http_address", "::1"),
        (["--http-address=10.0.0.1"], "metrics_address", "10.0.0.1"),
        (["--http-address=10.0.0.1", "--metrics-address=::1"], "metrics_address", "::1"),
        (["--allow-metrics=false"], "allow_cpu_metrics", False),
        (["--metrics-config=counter_latencies=false"], "counter_latencies", False),
        (["--trace-config=rate=5"], "trace_config", (TraceSetting("trace_rate", 5),)),
        (
            ["--trace-config=level=max", "--trace-config", "triton,file=a,b=c"],
            "trace_config",
            (TraceSetting("trace_level", "TIMESTAMPS"), TraceSetting("trace_file", "a,b=c")),
        ),
        (["--trace-config=triton,log-frequency=0"], "trace_config", (TraceSetting("log_frequency", 0),)),
        (["--metrics-config", "summary_latencies=false"], "counter_latencies", True),
        (["--http-max-input-size=5000000000"], "http_max_input_size", 5_000_000_000),
        (["--model-store=b"], "model_repository", (Path("models"), Path("b"))),
        (["--model-repository", "b c"], "model_repository", (Path("models"), Path("b c"))),
    ],
)
def test_a_good_option_sets_its_field(argv: list[str], field: str, value: object) -> None:
    assert getattr(options(*argv), field) == value


@pytest.mark.parametrize("text", ["true", "TRUE", "On", "1", "false", "False", "OFF", "0"])
def test_booleans_take_the_words_of_the_reference_in_any_case(text: str) -> None:
    assert options(f"--exit-on-error={text}").exit_on_error is (text.lower() in ("true", "on", "1"))


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (
            ["--http-port=abc"],
            'Bad option: "--http-port". Invalid option value. Got abc. Expected: an integer from 0 to',
        ),
        (["--http-port=8000x"], "Invalid option value. Got 8000x"),
        (["--http-port=8 0"], "Invalid option value. Got 8 0"),
        (["--http-port=٨"], "Invalid option value. Got ٨"),
        (["--http-port="], "Invalid option value. Got . Expected"),
        (
            ["--http-port=65536"],
            "Provided option value is out of bound. Got 65536. Expected: an integer from 0 to 65535.",
        ),
        (["--http-port=-1"], "Provided option value is out of bound. Got -1"),
        (["--exit-timeout-secs=99999999999"], "Provided option value is out of bound. Got 99999999999"),
        (["--exit-timeout-secs=" + "9" * 9999], "Provided option value is out of bound."),
        (["--model-load-thread-count=-1"], "out of bound. Got -1"),
        (["--metrics-interval-ms=0.5"], "out of bound. Got 0. Expected: a number from 1"),
        (["--metrics-interval-ms=1.5s"], "Invalid option value. Got 1.5s"),
        (["--http-max-input-size=0"], "Error: --http-max-input-size must be greater than 0. Expected: an integer"),
        (["--http-max-input-size=-3"], "Error: --http-max-input-size must be greater than 0."),
        (
            ["--allow-http=yes"],
            'Bad option: "--allow-http". invalid value for bool option: yes. Expected: true, on, 1,',
        ),
        (["--log-verbose=loud"], "Invalid option value. Got loud"),
        (["--log-format=iso8601"], "Got iso8601. Expected: 'default' or 'ISO8601' or 'json'."),
        (
            ["--load-model=m"],
            "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.",
        ),
        (
            ["--model-control-mode=explicit", "--load-model=m", "--load-model=*"],
            "Wildcard model name '*' must be the ONLY startup model if specified at all.",
        ),
        (
            ["--model-control-mode=manual"],
            "Invalid option value. Got manual. Expected: 'none' or 'poll' or 'explicit'.",
        ),
        (["--repository-poll-secs=-1"], "Provided option value is out of bound. Got -1"),
        (["--model-load-retry-count=-1"], "Provided option value is out of bound. Got -1"),
        (["--model-config-name="], "Error: empty argument for --model-config-name"),
        (["--model-config-name=a b"], "Invalid option value. Got a b"),
        (["--model-config-name=../x"], "Invalid option value. Got ../x"),
        (["--model-repository=ftp://bucket"], "ftp:// storage is not supported by naiad, only s3, gs, as"),
        (["--model-repository="], "The path is empty"),
        (["--http-address="], 'Bad option: "--http-address".'),
        (["--http-address=http://localhost"], "Got http://localhost. Expected: a host name"),
        (["--metrics-config=counter_latency=false"], "unknown setting 'counter_latency', known ones are counter_lat"),
        (
            ["--metrics-config=summary_latencies=2"],
            "invalid value for bool option: 2. Expected: counter_latencies=<bool",
        ),
        (["--metrics-config=summary_quantiles=0.5"], "'0.5' is not <quantile>:<error>, two numbers from 0 to 1"),
        (["--metrics-config=summary_quantiles=1.5:0.1"], "'1.5:0.1' is not <quantile>:<error>"),
        (["--metrics-config=summary_quantiles=nan:0.1"], "'nan:0.1' is not <quantile>:<error>"),
        (["--metrics-config=summary_quantiles=0.5:0.1,0.5:0"], "summary_quantiles names a quantile twice"),
        (["--trace-config=opentelemetry,url=ftp://x"], "the url 'ftp://x' does not begin with http:// or https://"),
        (["--trace-config=opentelemetry,resource=x"], "the resource 'x' is not of the form <key>=<value>"),
        (
            ["--trace-config=opentelemetry,bsp_schedule_delay=9", "--trace-config=opentelemetry,bsp_max_queue_size=0"],
            "opentelemetry,bsp_max_queue_size: expected a number from 1 to 1048576, got: 0",
        ),
        (
            ["--trace-config=mode=opentelemetry", "--trace-config=level=TENSORS"],
            "the trace level TENSORS is for files: it needs --trace-config mode=triton",
        ),
        (["--trace-config=mode=zipkin"], "Invalid option value. Got zipkin"),
        (["--trace-config=level=TIMESTAMPS"], "--trace-config level needs a file: name one with --trace-config triton"),
        (["--trace-config=level=TENSORS"], "--trace-config level needs a file: name one with --trace-config triton"),
        (
            ["--trace-config=level=nonsense"],
            "unknown trace level 'nonsense', known ones are OFF, TIME",
        ),
        (["--trace-config=rate=-1"], "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1"),
        (["--trace-config=file=x"], "unknown setting 'file', known ones are mode, level, rate, count, triton,file"),
        (["--trace-config=triton,file="], "The path is empty"),
        (
            ["--trace-config=level=OFF", "--trace-config=level=ON", "--trace-config=triton,file=f"],
            "Expect only one trace level 'OFF' is specified: give --trace-config level once",
        ),
        (["--trace-rate=x"], "Unable to parse 'trace_rate', got: x"),
        (["--trace-level=TIMESTAMPS"], "--trace-config level needs a file"),
        (["--trace-config=rate"], "Expected: mode=triton or opentelemetry, level=OFF, TIMESTAMPS or TENSORS"),
        (["--metrics-config=counter_latencies"], "Expected: counter_latencies=<boolean>"),
        (["--backend-config=onnxruntime"], "Expected: <backend>,<key>=<value>, or <key>=<value> for all backends."),
        (["--backend-config=default-max-batch-size=many"], "Invalid option value. Got many"),
        (["--disable-auto-complete-config=true"], "takes no value. Got true"),
        (["--http-port"], 'Bad option: "--http-port". a value is missing. Expected: an integer'),
        (["--http-port", "--id=x"], 'Bad option: "--http-port". a value is missing.'),
        (["--htpp-port=1"], 'Bad option: "--htpp-port". unknown option; did you mean "--http-port"?'),
        (["--modl-repository", "x"], '"--modl-repository". unknown option; did you mean "--model-repository"?'),
        (["--log-=x"], 'Bad option: "--log-". it is ambiguous: "--log-verbose", '),
        (["--grpc-use-s=1"], '"--grpc-use-s". it is ambiguous: "--grpc-use-ssl", "--grpc-use-ssl-mutual".'),
        (["--zzz"], 'Bad option: "--zzz". unknown option.'),
        (["-p"], 'Bad option: "-p". unknown option.'),
        (["--host-policy=p", "--host-policy=p"], "option format is '<policy name>,<setting>=<value>'. Got p"),
        (["--host-policy=,cpu-cores=0"], "option format is '<policy name>,<setting>=<value>'. Got ,cpu-cores=0"),
        (["--host-policy=p,cpu-cores="], "option format is '<policy name>,<setting>=<value>'. Got p,cpu-cores="),
        (
            ["--host-policy=p,cores=1"],
            "Unsupported host policy setting 'cores' is specified, supported settings are 'numa-node', 'cpu-cores'",
        ),
        (["--host-policy=p,cpu-cores=all"], "cpu-cores takes numbers and ranges, such as 0-3,8. Got all"),
        (["--host-policy=p,cpu-cores=3-1"], "cpu-cores takes numbers and ranges, such as 0-3,8. Got 3-1"),
        (["--host-policy=p,numa-node=x"], "Invalid option value. Got x"),
        (["--host-policy=p,numa-node=9999"], "Provided option value is out of bound. Got 9999"),
        (["--model-load-gpu-limit=0:1.5"], "expected a fraction from 0 to 1 of the GPU's memory. Got 1.5"),
        (["--model-load-gpu-limit=0:"], "expected a fraction from 0 to 1"),
        (["--model-load-gpu-limit=0.5"], "Invalid option value. Got 0.5"),
        (["--cuda-virtual-address-size=0:x"], "Got x. Expected: the number of a GPU and bytes, such as 0:1073741824."),
        (["--min-supported-compute-capability=new"], "Got new. Expected: a compute capability, such as 7.5."),
        (["--sagemaker-safe-port-range=9000-8000"], "Got 9000-8000. Expected: two ports, such as 8000-9000."),
        (["--zzz", "--zzz"], 'Bad option: "--zzz". unknown option.'),
        (
            ["--allow-sagemaker=true", "--allow-vertex-ai=true"],
            "The server cannot listen to SageMaker requests and Vertex AI requests at the same address and port "
            "0.0.0.0:8080",
        ),
        (
            ["--allow-sagemaker=true", "--http-port=8080"],
            "The server cannot listen to HTTP requests and SageMaker requests at the same address and port",
        ),
        (
            ["--allow-sagemaker=true", "--sagemaker-safe-port-range=8001-8002"],
            "The server cannot listen to HTTP requests at port 8000, allowed port range is [8001, 8002]",
        ),
        (
            ["--grpc-port=65536"],
            'Bad option: "--grpc-port". Provided option value is out of bound. Got 65536. Expected: an integer from 0',
        ),
        (["--http-port=-47"], 'Bad option: "--http-port". Provided option value is out of bound. Got -47'),
        (["--metrics-port=-1"], 'Bad option: "--metrics-port". Provided option value is out of bound. Got -1'),
        (
            ["--grpc-infer-thread-count=1"],
            "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.",
        ),
        (
            ["--grpc-infer-thread-count=129"],
            "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.",
        ),
        (["--grpc-infer-response-compression-level=max"], "Got max. Expected: 'none' or 'low' or 'medium' or 'high'."),
        (["--grpc-keepalive-permit-without-calls=2"], "invalid value for bool option: 2"),
        (["--grpc-http2-max-ping-strikes=-1"], "out of bound. Got -1"),
        (["--grpc-max-input-size=0"], "Error: --grpc-max-input-size must be greater than 0."),
        (["--grpc-max-input-size=2147483648"], "out of bound. Got 2147483648"),
        (["--grpc-transport=other"], "Got other. Expected: 'naiad' or 'grpcio'."),
        (["--grpc-max-response-pool-size=0"], "Error: --grpc-max-response-pool-size must be greater than 0."),
        (["--grpc-header-forward-pattern=(x"], "Invalid pattern of header names. Got (x"),
        (["--grpc-use-ssl=true"], "--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key"),
        (["--grpc-use-ssl=1", "--grpc-server-cert=c"], "--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key"),
        (
            ["--grpc-use-ssl-mutual=true", "--grpc-server-cert=c", "--grpc-server-key=k"],
            "--grpc-use-ssl-mutual needs --grpc-root-cert",
        ),
        (["--http-port-serves-grpc=true", "--allow-http=false"], "--http-port-serves-grpc needs the HTTP port"),
        (["nowhere.onnx"], "Unexpected argument: nowhere.onnx. No such file or folder"),
        (["x" * 5000], "Unexpected argument: xxx"),
        (
            ["--metrics-port=8000"],
            "The server cannot listen to HTTP requests and metrics requests at the same address and port 0.0.0.0:8000",
        ),
        (
            ["--grpc-port=8000"],
            "The server cannot listen to HTTP requests and GRPC requests at the same address and port 0.0.0.0:8000",
        ),
        (
            ["--metrics-port=8001"],
            "The server cannot listen to GRPC requests and metrics requests at the same address and port 0.0.0.0:8001",
        ),
    ],
)
def test_a_bad_option_is_named_with_what_would_be_right(argv: list[str], text: str) -> None:
    found = problems(*argv)
    assert len(found) == 1
    assert text in found[0]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = problems("--http-port=abc", "--exit-on-error=maybe", "--nothing-like-it", "gone.pt", NAIAD_LOG_FORMAT="xml")
    assert [line.split(".")[0] for line in found] == [
        'Bad option: "--http-port"',
        'Bad option: "--exit-on-error"',
        'Bad option: "--nothing-like-it"',
        'Bad option: "--log-format" (environment variable NAIAD_LOG_FORMAT)',
        "Unexpected argument: gone",
    ]


@pytest.mark.parametrize("name", ["http", "grpc", "metrics"])
def test_a_port_that_is_not_opened_may_have_any_number(name: str) -> None:
    assert getattr(options(f"--{name}-port=-47", f"--allow-{name}=false"), f"{name}_port") == -47


def test_two_listeners_may_share_what_does_not_clash() -> None:
    assert options("--http-port=0", "--metrics-port=0").http_port == 0
    assert options("--metrics-port=8000", "--allow-http=false").metrics_port == 8000
    assert options("--metrics-port=8000", "--allow-metrics=false").metrics_port == 8000
    assert options("--http-port=8001", "--allow-grpc=false").http_port == 8001
    assert options("--http-port=8001", "--grpc-address=127.0.0.1").http_port == 8001
    assert options("--metrics-port=8000", "--metrics-address=127.0.0.1").metrics_port == 8000


def test_a_bad_listener_option_is_not_followed_by_a_clash_with_its_default() -> None:
    assert len(problems("--http-port=x", "--metrics-port=8000")) == 1


def test_without_any_model_the_missing_repository_is_named() -> None:
    with pytest.raises(OptionError, match=r"^--model-repository must be specified: give --model-repository=<"):
        parse([], {})
    with pytest.raises(OptionError, match=r"^Nothing to check: name a repository"):
        parse_check([], {})


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("10KiB", 10 << 10), ("4gib", 4 << 30), ("1TiB", 1 << 40)])
def test_sizes_have_units(text: str, size: int) -> None:
    got = options(f"--model-memory-budget={text}", f"--max-in-flight-bytes={text}", f"--log-file-max-bytes={text}")
    assert (got.model_memory_budget, got.max_in_flight_bytes, got.log_file_max_bytes) == (size, size, size)


@pytest.mark.parametrize("text", ["4GB", "-1", "1.5GiB", "GiB", "9223372036854775807KiB", "9999999999999999999"])
def test_wrong_sizes(text: str) -> None:
    (problem,) = problems(f"--model-memory-budget={text}")
    assert problem.endswith("Expected: a number of bytes, or one of KiB, MiB, GiB or TiB, such as 4GiB.")


def test_a_misspelt_repository_is_one_problem() -> None:
    with pytest.raises(OptionError) as error:
        parse(["--model-repositry=models"], {})
    assert str(error.value) == 'Bad option: "--model-repositry". unknown option; did you mean "--model-repository"?'


def test_model_files_stand_for_a_repository(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"")
    dashed = tmp_path / "--odd.onnx"
    dashed.write_bytes(b"")
    got = parse([str(model), "--http-port", "0", "--", str(dashed)], {})
    assert got.paths == (model, dashed)
    assert got.model_repository == ()


@pytest.mark.parametrize("name", ["allow-sagemaker", "allow-vertex-ai", "model-namespacing"])
def test_a_feature_that_is_off_here_may_be_switched_off(name: str) -> None:
    assert options(f"--{name}=false") == options()
    assert options(f"--{name}", "0") == options()


PREDICTION = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "5234"}


def test_vertex_ai_turns_its_own_port_on_and_the_others_off() -> None:
    found = options(**PREDICTION)
    assert (found.allow_vertex_ai, found.allow_http, found.allow_grpc, found.vertex_ai_port) == (
        *(True, False, False),
        5234,
    )
    assert not options(AIP_MODE="TRAINING").allow_vertex_ai


def test_what_is_given_goes_before_what_the_platform_says() -> None:
    found = options("--allow-http=true", "--vertex-ai-port=6000", NAIAD_ALLOW_GRPC="true", **PREDICTION)
    assert (found.allow_vertex_ai, found.allow_http, found.allow_grpc, found.vertex_ai_port) == (True, True, True, 6000)
    assert not options("--allow-vertex-ai=false", **PREDICTION).allow_vertex_ai


def test_a_port_of_the_platform_that_is_none_is_named_with_its_variable() -> None:
    (found,) = problems(AIP_HTTP_PORT="x")
    assert found.startswith(
        'Bad option: "--vertex-ai-port" (environment variable AIP_HTTP_PORT). Invalid option value.'
    )


def test_sagemaker_says_which_ports_are_whose() -> None:
    found = options(SAGEMAKER_BIND_TO_PORT="8085", SAGEMAKER_SAFE_PORT_RANGE="8000-8010")
    assert (found.sagemaker_port, found.sagemaker_safe_port_range, found.allow_sagemaker) == (8085, "8000-8010", False)
    # The range is for the others, and for the same address only.
    assert options("--allow-sagemaker=true", SAGEMAKER_SAFE_PORT_RANGE="8000-8010").allow_sagemaker
    elsewhere = ("--http-address=127.0.0.1", "--http-port=9999", "--allow-grpc=false")
    assert options("--allow-sagemaker=true", *elsewhere, SAGEMAKER_SAFE_PORT_RANGE="8000-8010").http_port == 9999


def test_vertex_ai_names_the_models_where_nobody_else_does(tmp_path: Path) -> None:
    place = {"AIP_STORAGE_URI": str(tmp_path)}
    assert parse([], place).model_repository == (tmp_path,)
    assert parse(["--model-repository=other"], place).model_repository == (Path("other"),)
    assert parse([str(tmp_path)], place).model_repository == ()


def test_backend_settings_are_merged_global_first() -> None:
    got = options(
        "--backend-config=default-max-batch-size=8",
        "--backend-config",
        "onnxruntime,default-max-batch-size=16",
        "--backend-config=onnxruntime,extra=a,b=c",
    )
    everywhere = {"backend-directory": "/opt/tritonserver/backends"}
    assert got.settings_of("onnxruntime") == {**everywhere, "default-max-batch-size": "16", "extra": "a,b=c"}
    assert got.settings_of("pytorch") == {**everywhere, "default-max-batch-size": "8"}
    assert got.backend_settings[""] == {**everywhere, "default-max-batch-size": "8"}


def test_the_folder_of_backends_is_a_setting_of_all_of_them() -> None:
    assert options("--backend-directory=/a").settings_of("x") == {"backend-directory": "/a"}
    got = options("--backend-directory=/a", "--backend-config=backend-directory=/b")
    assert got.settings_of("x") == {"backend-directory": "/b"}


def test_the_environment_sets_options_and_the_command_line_wins() -> None:
    environ = {"NAIAD_HTTP_PORT": "1234", "NAIAD_EXIT_ON_ERROR": "off", "NAIAD_ID": ""}
    got = options("--http-port=5678", **environ)
    assert (got.http_port, got.exit_on_error, got.id) == (5678, False, "triton")
    assert options(**environ).http_port == 1234
    assert options("--http-port=1", NAIAD_HTTP_PORT="junk").http_port == 1


def test_the_environment_holds_several_values_and_flags() -> None:
    environ = {"NAIAD_MODEL_REPOSITORY": "a;b", "NAIAD_DISABLE_AUTO_COMPLETE_CONFIG": "true"}
    got = parse([], environ)
    assert got.model_repository == (Path("a"), Path("b"))
    assert got.disable_auto_complete_config
    assert parse(["--model-store=c"], environ).model_repository == (Path("c"),)


def test_names_may_be_cut_short() -> None:
    assert not options("--log-warn=false").log_warning
    assert options("--metrics-po", "8123").metrics_port == 8123
    assert options("--model-control", "explicit", "--load-m=m").load_model == ("m",)
    assert options("--id=x").id == "x", "a whole name is itself, whatever else begins with it"


def test_options_without_effect_and_deprecated_ones_are_remarked_on() -> None:
    assert options("--http-thread-count=4").warnings == (
        "--http-thread-count has no effect: one event loop serves all HTTP connections",
    )
    pools = ("--cuda-memory-pool-byte-size=0:0", "--enable-peer-access=FALSE")
    for name in ("--grpc-infer-thread-count=2", "--grpc-infer-allocation-pool-size=8", *pools):
        assert "has no effect" in options(name).warnings[0]
    assert "no effect without --grpc-use-ssl=true" in options("--grpc-server-cert=c").warnings[0]
    assert "is deprecated: use --disable-auto-complete-config" in options("--strict-model-config=1").warnings[0]
    both = options("--disable-auto-complete-config", "--strict-model-config=false")
    assert both.disable_auto_complete_config
    assert "--strict-model-config=false has no effect beside" in both.warnings[1]
    assert "NAIAD_HTPP_PORT" in options(NAIAD_HTPP_PORT="1").warnings[0]
    assert options(NAIAD_PORT="tcp://10.0.0.1:80").warnings == ()


@pytest.mark.parametrize(
    ("given", "remark"),
    [
        ("--repository-poll-secs=3", "--repository-poll-secs has no effect without --model-control-mode=poll"),
        ("--rate-limit-resource=memory:8", "--rate-limit-resource has no effect without --rate-limit=execution_count"),
        (
            "--backend-config=python,memory-limit=3",
            "--backend-config=python,memory-limit has no effect; did you mean python,memory-limit-mb?",
        ),
        (
            "--backend-config=pyton,memory-limit-mb=3",
            "--backend-config=pyton,memory-limit-mb has no effect; did you mean python,memory-limit-mb?",
        ),
        ("--backend-config=exection=process", "--backend-config=exection has no effect; did you mean execution?"),
    ],
)
def test_options_that_have_no_effect_as_they_stand(given: str, remark: str) -> None:
    assert options(given).warnings == (remark,)


def test_a_hint_leads_to_no_parameter_of_models() -> None:
    """``threads`` is one of forests; as a setting it would have no effect either."""
    assert options("--backend-config=fil,thread=4").warnings == ()


def test_settings_of_other_backends_are_not_remarked_on() -> None:
    listed = (f"--backend-config=python,{name}={'1' if name == 'default-max-batch-size' else 'x'}" for name in SETTINGS)
    assert options(*listed, "--backend-config=words,spelling=1", "--backend-config=vllm,x=1").warnings == ()
    assert options("--repository-poll-secs=3", "--model-control-mode=poll").warnings == ()
    assert options("--rate-limit-resource=m:8", "--rate-limit=execution_count").warnings == ()
    assert set(registry.known()) >= BACKENDS


OF_THE_REFERENCE = """
    id=x exit-timeout-secs=1 model-store=b exit-on-error=1 disable-auto-complete-config strict-readiness=1
    model-control-mode=explicit repository-poll-secs=1 load-model=m model-config-name=c model-load-thread-count=1
    model-load-retry-count=1 model-namespacing=0 enable-peer-access=1 allow-http=1 http-address=::1 http-port=1
    reuse-http-port=1 http-header-forward-pattern=x http-thread-count=1 http-max-input-size=1
    http-restricted-api=health:k=v allow-grpc=1 grpc-address=::1 grpc-port=2 reuse-grpc-port=1
    grpc-header-forward-pattern=x grpc-infer-thread-count=2 grpc-infer-allocation-pool-size=1
    grpc-max-response-pool-size=1 grpc-use-ssl=0 grpc-use-ssl-mutual=0 grpc-server-cert=c grpc-server-key=k
    grpc-root-cert=r grpc-infer-response-compression-level=low grpc-keepalive-time=1 grpc-keepalive-timeout=1
    grpc-keepalive-permit-without-calls=1 grpc-http2-max-pings-without-data=1
    grpc-http2-min-recv-ping-interval-without-data=1 grpc-http2-max-ping-strikes=1 grpc-max-connection-age=1
    grpc-max-connection-age-grace=1 grpc-restricted-protocol=health:k=v allow-client-shm=1 log-verbose=1 log-info=1
    log-warning=1 log-error=1 log-format=ISO8601 log-file=f allow-sagemaker=0 sagemaker-port=8080
    sagemaker-safe-port-range=8000-9000 sagemaker-thread-count=8 allow-vertex-ai=0 vertex-ai-port=8080
    vertex-ai-thread-count=8 vertex-ai-default-model=m allow-metrics=1 allow-gpu-metrics=1 allow-cpu-metrics=1
    metrics-address=::1 metrics-port=3 metrics-interval-ms=1 metrics-config=counter_latencies=1 trace-config=rate=1
    cache-config=local,size=1048576 cache-directory=c rate-limit=off rate-limit-resource=r:1
    pinned-memory-pool-byte-size=1 cuda-memory-pool-byte-size=0:1 cuda-virtual-address-size=0:1
    min-supported-compute-capability=6 buffer-manager-thread-count=4 host-policy=p,numa-node=0
    host-policy=p,cpu-cores=0-3,8 model-load-gpu-limit=0:0.75 model-load-gpu-limit=1:1.0 model-load-gpu-limit=2:0
    backend-directory=b backend-config=python,a=b repoagent-directory=r strict-model-config=0 trace-file=f
    trace-level=OFF trace-rate=1 trace-count=1 trace-log-frequency=0
"""


def test_every_option_of_the_reference_is_taken() -> None:
    got = options(*[f"--{text}" for text in OF_THE_REFERENCE.split()])
    without_effect = [text.split()[0] for text in got.warnings if "has no effect:" in text]
    assert without_effect == [
        *("--enable-peer-access", "--http-thread-count", "--grpc-infer-thread-count"),
        *("--grpc-infer-allocation-pool-size", "--sagemaker-thread-count", "--vertex-ai-thread-count"),
        *("--cache-directory", "--cuda-memory-pool-byte-size"),
        *("--cuda-virtual-address-size", "--buffer-manager-thread-count"),
    ]
    assert [str(setting) for setting in got.host_policy] == ["p,numa-node=0", "p,cpu-cores=0-3,8"]
    assert got.host_policies == {"p": Affinity((0, 1, 2, 3, 8), 0)}


def test_of_a_host_policy_given_twice_the_last_one_counts() -> None:
    found = options("--host-policy=p,cpu-cores=0", "--host-policy=q,cpu-cores=2", "--host-policy=p,cpu-cores=1")
    assert found.host_policies == {"p": Affinity((1,)), "q": Affinity((2,))}


def test_check_takes_its_own_options_only(tmp_path: Path) -> None:
    got = parse_check([str(tmp_path), "--model-config-name=small", "--backend-config=a=b"], {"NAIAD_HTTP_PORT": "x"})
    assert (got.paths, got.model_config_name, got.http_port) == ((tmp_path,), "small", 8000)
    with pytest.raises(OptionError, match=r'"--http-port"\. it is an option of naiad serve only'):
        parse_check([str(tmp_path), "--http-port", "9"], {})


def test_help_is_found_before_the_end_of_the_options() -> None:
    assert wants_help(["--http-port=1", "--help"])
    assert wants_help(["-h"])
    assert not wants_help(["--", "--help"])
    assert not wants_help(["--id=--help"])


def test_every_option_is_explained_once_in_its_group() -> None:
    sections = serve_help().split("\n\n")
    for option in OPTIONS:
        assert len(option.help) > 20 and option.help.endswith("."), option.field
        holders = [s for s in sections if f"\n  {option.flag}" in s and f"[{option.variable}]" in s]
        assert [s.splitlines()[0] for s in holders] == [option.group.value + ":"], option.flag
        assert serve_help().count(f"[{option.variable}]") == 1


def test_groups_stand_in_the_order_of_the_reference() -> None:
    headings = [line[:-1] for line in serve_help().splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [g.value for g in Group]


def test_help_fits_a_terminal() -> None:
    assert max(len(line) for line in (serve_help() + check_help()).splitlines()) <= 115
    assert "--http-port" not in check_help()


def test_flags_are_unique() -> None:
    flags = [option.flag for option in OPTIONS]
    assert len(set(flags)) == len(flags)


def test_the_table_of_the_documentation_has_a_row_per_option() -> None:
    rows = option_table_markdown().splitlines()
    assert len(rows) == 2 + len(OPTIONS)
    assert "| HTTP | `--http-port <integer>` | `8000` | `NAIAD_HTTP_PORT` |" in option_table_markdown()
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)


def test_the_page_of_options_is_the_one_that_the_table_gives() -> None:
    page = Path(__file__).parent.parent / "docs" / "options.md"
    assert page.read_text().endswith("\n\n" + option_table_markdown()), "run scripts/docs"


def test_the_table_at_the_start_shows_the_values_in_force() -> None:
    rows = dict(option_rows(options("--backend-config=onnxruntime,a=1", "--metrics-config=counter_latencies=off")))
    assert len(rows) == len(OPTIONS)
    assert (rows["model_repository"], rows["http_port"], rows["allow_http"]) == ("models", "8000", "true")
    assert (rows["backend_config"], rows["metrics_config"]) == ("onnxruntime,a=1", "counter_latencies=false")
    rows = dict(option_rows(options("--trace-config=rate=5", "--trace-config=triton,file=a")))
    assert rows["trace_config"] == "rate=5 triton,file=a"


def test_the_earlier_options_of_traces_are_settings_of_the_new_one() -> None:
    got = options("--trace-file=f", "--trace-level=MAX", "--trace-rate=7", "--trace-count=2", "--trace-log-frequency=3")
    assert {s.name: s.value for s in got.trace_config} == {
        "trace_file": "f",
        "trace_level": "TIMESTAMPS",
        "trace_rate": 7,
        "trace_count": 2,
        "log_frequency": 3,
    }
    assert len([text for text in got.warnings if "is deprecated: use --trace-config" in text]) == 5
    assert options("--trace-config=rate=1", "--trace-rate=7").trace_config[-1].value == 1


def test_our_own_options_are_options() -> None:
    assert {option.field for option in OPTIONS} >= OWN

"""What ``naiad perf`` refuses, with the reference's own texts where it has one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from naiad.perf.options import EXIT_CODE, PerfOptionError, parse_perf
from naiad.perf.options.values import has_gpu

GRPC = "-i grpc"
PERIODIC = f"{GRPC} --streaming --profile-export-file=new.json --periodic-concurrency-range"
OPENAI = "--service-kind=openai --input-data=data.json --endpoint=v1 --async"
FIXED = "--fixed-schedule --input-data=data.json"
SEVERAL_MODES = (
    "Cannot specify more then one inference load mode. Please choose only one of the following modes: "
    "--concurrency-range, --periodic-concurrency-range, --request-rate-range, or --request-intervals."
)
OPEN_END = "The end of the search range and the latency limit can not be both 0 (or 0.0) simultaneously"
NO_FILE = "The value must be a valid file path."
INPUT_DATA = "The available options are 'zero', 'random', path to a directory, or a json file."
NEEDS_RANGE = (
    "--binary-search needs a range with both start and end: give --concurrency-range or --request-rate-range as "
    "start:end or start:end:step."
)
ID_ORDER = "Failed to parse --sequence-id-range. The 'end' value must be greater than 'start' value."
PERCENTILE = "Failed to parse --percentile. The value must be -1 for not reporting or in range (0, 100)."
BINARY_OR_JSON = "The available options are 'binary' or 'json'."
PEM_OR_DER = "The available options are 'PEM' or 'DER'."

# The texts of perf_analyzer 2.51.
AS_THE_REFERENCE = {
    "--concurrency-range 1 --request-rate-range 2": SEVERAL_MODES,
    "--request-rate-range 2 --request-intervals gaps.txt": SEVERAL_MODES,
    "--request-intervals gaps.txt --periodic-concurrency-range 1:2": SEVERAL_MODES,
    "-t 4 --concurrency-range 4": "Cannot use deprecated options with --concurrency-range.",
    "--concurrency-range 4 -d": "Cannot use deprecated options with --concurrency-range.",
    "--request-intervals nofile": "Failed to parse --request-intervals. The value must be a valid file path",
    "-z --input-data data.json": "The -z flag cannot be set when --data-directory is provided.",
    "--input-data zero --input-data data.json": "The -z flag cannot be set when --data-directory is provided.",
    "--input-data nope": f"Failed to parse --input-data. Unsupported type provided: 'nope'. {INPUT_DATA}",
    "--shape a": "Failed to parse --shape. There must be a colon after input name.",
    "--shape a:": "Failed to parse --shape. Invalid value provided: a:",
    "--shape a:0": "Failed to parse --shape. The dimensions of input tensor must be > 0.",
    "--shape a:1,b": "Failed to parse --shape. Invalid value provided: a:1,b",
    "--concurrency-range 0": "The start of the search range must be > 0",
    "--concurrency-range 0:4": "The start of the search range must be > 0",
    "--concurrency-range 1:0": OPEN_END,
    "--concurrency-range 1:": "Failed to parse --concurrency-range. Invalid value provided: 1:",
    "--concurrency-range a": "Failed to parse --concurrency-range. Invalid value provided: a",
    "--concurrency-range 1:2:3:4": "Failed to parse --concurrency-range. The value does not match <start:end:step>.",
    "--conc 1:a": "Failed to parse --concurrency-range. Invalid value provided: 1:a",
    "-d": OPEN_END,
    "--request-rate-range 0:4": ("Failed to parse --request-rate-range. The start of the search range must be > 0."),
    "--request-rate-range -1": "Failed to parse --request-rate-range. The start of the search range must be > 0.",
    "--request-rate-range 1:0": OPEN_END,
    "--request-rate-range 1:2:3:4": "Failed to parse --request-rate-range. The value does not match <start:end:step>.",
    "--request-rate-range a": "Failed to parse --request-rate-range. Invalid value provided: a",
    "--binary-search --concurrency-range 1:4": "The --latency-threshold cannot be 0 for binary search mode.",
    "--binary-search --concurrency-range 1:0 -l 5": (
        "The end of the range can not be 0 (or 0.0) for binary search mode."
    ),
    "--binary-search --request-rate-range 1:0 -l 5": (
        "The end of the range can not be 0 (or 0.0) for binary search mode."
    ),
    "--binary-search --concurrency-range 4:2 -l 5": (
        "The end of the range can not be less than start of the range for binary search mode."
    ),
    "-i nope": "Failed to parse -i (protocol). The value should be either HTTP or gRPC.",
    "--streaming": "Streaming is only allowed with gRPC protocol and Triton C API.",
    "--grpc-compression-algorithm gzip": "Using compression algorithm is only allowed with gRPC protocol.",
    "--grpc-compression-algorithm none": "Using compression algorithm is only allowed with gRPC protocol.",
    f"--grpc-compression-algorithm nope {GRPC}": (
        "Failed to parse --grpc-compression-algorithm. Unsupported type provided: 'nope'. The available options are "
        "'gzip', 'deflate', or 'none'."
    ),
    "--sequence-length a": "Failed to parse --sequence-length. Invalid value provided: a",
    "--sequence-length-variation -1": "Failed to parse --sequence-length-variation. The value must be >= 0.0.",
    "--sequence-id-range 5:2": ID_ORDER,
    "--sequence-id-range 1:2:3": "Failed to parse --sequence-id-range. The value does not match <start:end>.",
    "--sequence-id-range 1:": "Failed to parse --sequence-id-range. Invalid value provided: 1:",
    "--sequence-id-range -1": "Failed to parse --sequence-id-range. The range values must be >= 0.",
    "--percentile 0": PERCENTILE,
    "--percentile 100": PERCENTILE,
    "--percentile abc": PERCENTILE,
    "--percentile=": PERCENTILE,
    "-a --sync": "Cannot specify --async and --sync simultaneously.",
    "--periodic-concurrency-range 1": (
        "Failed to parse --periodic-concurrency-range. Both <start> and <end> values must be provided."
    ),
    "--periodic-concurrency-range 1:2:3:4": (
        "Failed to parse --periodic-concurrency-range. The value does not match <start:end:step>."
    ),
    "--periodic-concurrency-range 1:4:2": (
        "Failed to parse --periodic-concurrency-range. The <step> value must be a factor of the range size (<end> - "
        "<start>)."
    ),
    "--periodic-concurrency-range 4:1": ("Failed to parse --periodic-concurrency-range. The <start> must be <= <end>."),
    "--periodic-concurrency-range 1:4:0": (
        "Failed to parse --periodic-concurrency-range. The <step> value must be > 0."
    ),
    "--periodic-concurrency-range 1:4": (
        "The --periodic-concurrency-range option requires bi-directional gRPC streaming."
    ),
    f"--periodic-concurrency-range 1:4 --streaming {GRPC}": (
        "Must provide --profile-export-file when using the --periodic-concurrency-range option."
    ),
    "--request-period 0": "Failed to parse --request-period. The value must be > 0",
    "--request-parameter a:1:int": ("The --request-parameter option is currently only supported by gRPC protocol."),
    f"--request-parameter a:1 {GRPC}": (
        "Failed to parse --request-parameter. The value does not match <name:value:type>."
    ),
    "--request-count -1": "Failed to parse --request-count. The value must be > 0.",
    "--request-count 5 --concurrency-range 8": "request-count can not be less than concurrency",
    "--request-count 50 --concurrency-range 1:8": (
        "request-count not supported with multiple concurrency values in one run"
    ),
    "--request-count 5 --request-rate-range 8": "request-count can not be less than request-rate",
    "--request-count 50 --request-rate-range 1:8": (
        "request-count not supported with multiple request-rate values in one run"
    ),
    "--warmup-request-count -1": "Failed to parse --warmup-request-count. The value must be >= 0.",
    "--service-kind torchserve": ("--input-data should be provided with a json file with input data for torchserve."),
    "--service-kind triton_c_api": ("--model-repository should not be empty when using service-kind=triton_c_api."),
    "--service-kind triton_c_api --model-repository . -a --streaming --shared-memory system": (
        "Cannot use --shared-memory=system or --shared-memory=cuda with --service-kind=triton_c_api and --async and "
        "--streaming."
    ),
    "--service-kind openai": "Must supply --input-data for OpenAI service kind.",
    "--service-kind openai --input-data data.json": (
        'Must supply --endpoint for OpenAI service kind. For example, "v1/chat/completions".'
    ),
    "--service-kind openai --input-data data.json --endpoint v1": (
        "Only async mode is currently supported for OpenAI service-kind"
    ),
    f"{OPENAI} {GRPC}": "perf_analyzer does not support gRPC protocol with OpenAI endpoints",
    f"{OPENAI} -b 2": "Batching is not currently supported with OpenAI service-kind",
    "--collect-metrics --service-kind torchserve --input-data data.json": (
        "Server-side metric collection is only supported with Triton client backend."
    ),
    "--metrics-interval 0": "Failed to parse --metrics-interval. The value must be > 0 msecs.",
    "--max-threads 0": "Failed to parse --max-threads. The value must be > 0.",
    "--max-threads a": "Failed to parse --max-threads. Invalid value provided: a",
    "-p 0": "Failed to parse --measurement-interval (-p). The value must be > 0 msec.",
    "-p a": "Failed to parse -p. Invalid value provided: a",
    "--measurement-interval a": "Failed to parse --measurement-interval. Invalid value provided: a",
    "-l -1": "Failed to parse --latency-threshold (-l). The value must be >= 0 msecs.",
    "-s -1": "Failed to parse --stability-percentage (-s). The value must be >= 0.0.",
    "-r 0": "Failed to parse --max-trials (-r). The value must be > 0.",
    "--string-length 0": "Failed to parse --string-length. The value must be > 0",
    "--num-of-sequences 0": "Failed to parse --num-of-sequences. The value must be > 0.",
    "--shared-memory nope": (
        "Failed to parse --shared-memory. Unsupported type provided: 'nope'. The available options are 'system', "
        "'cuda', or 'none'."
    ),
    "--output-shared-memory-size -1": ("Failed to parse --output-shared-memory-size. The value must be >= 0."),
    "--measurement-mode nope": (
        "Failed to parse --measurement-mode. Unsupported type provided: 'nope'. The available options are "
        "'time_windows' or 'count_windows'."
    ),
    "--measurement-request-count 0": ("Failed to parse --measurement-request-count. The value must be > 0."),
    "--input-tensor-format nope": (
        f"Failed to parse --input-tensor-format. Unsupported type provided: 'nope'. {BINARY_OR_JSON}"
    ),
    "--output-tensor-format nope": (
        f"Failed to parse --output-tensor-format. Unsupported type provided: 'nope'. {BINARY_OR_JSON}"
    ),
    **{
        f"--ssl-{name} nofile": f"Failed to parse --ssl-{name}. {NO_FILE}"
        for name in (
            "grpc-root-certifications-file",
            "grpc-private-key-file",
            "grpc-certificate-chain-file",
            "https-ca-certificates-file",
            "https-client-certificate-file",
            "https-private-key-file",
        )
    },
    "--ssl-https-verify-peer 2": "Failed to parse --ssl-https-verify-peer. The value must be either 0 or 1.",
    "--ssl-https-verify-host 3": "Failed to parse --ssl-https-verify-host. The value must be either 0, 1, or 2.",
    "--ssl-https-client-certificate-type nope": (
        f"Failed to parse --ssl-https-client-certificate-type. Unsupported type provided: 'nope'. {PEM_OR_DER}"
    ),
    "--ssl-https-private-key-type nope": (
        f"Failed to parse --ssl-https-private-key-type. Unsupported type provided: 'nope'. {PEM_OR_DER}"
    ),
    "--trace-level nope": (
        "Failed to parse --trace-level. Unsupported type provided: 'nope'. The available options are 'OFF', "
        "'TIMESTAMPS', or 'TENSORS'."
    ),
    "--trace-count -2": "Failed to parse --trace-count. The value must be >= 0 or set to -1 (default).",
    "--trace-count a": "Failed to parse --trace-count. Invalid value provided: a",
    "--log-frequency -1": "Failed to parse --log-frequency. The value must be >= 0.",
    "--profile-export-file data.json": "Failed to parse --profile-export-file. Path must not already exist.",
    "-b 0": "Failed to parse -b (batch size). The value must be > 0.",
    "-b a": "Failed to parse -b. Invalid value provided: a",
    "-b=4": "Failed to parse -b. Invalid value provided: =4",
    "--async=true": "option '--async' doesn't allow an argument",
    "-q": "invalid option -- 'q'",
    "-x": "option requires an argument -- 'x'",
    "--trace-level": "option '--trace-level' requires an argument",
    "--zzz 5": "unrecognized option '--zzz'",
}
# Those of releases after 2.51.
AS_LATER_RELEASES = {
    "--session-concurrency 2": "Session concurrency mode is only supported with OpenAI service kind.",
    f"{OPENAI} --session-concurrency 0": ("Failed to parse --session-concurrency. Session concurrency must be > 0."),
    f"{OPENAI} --session-concurrency a": "Failed to parse --session-concurrency. Invalid value provided: a",
    f"{FIXED} --request-count 5": (
        "Cannot specify `--request-count` when using `--fixed-schedule`. The request count will be equal to the number "
        "of requests in the input data minus the warmup request count."
    ),
    "--fixed-schedule": "When using `--fixed-schedule`, you must provide a dataset using `--input-data`.",
    "--fixed-schedule --input-data .": (
        "'.' is not a file. When using `--fixed-schedule`, all paths passed to --input-data must be files."
    ),
    "--grpc-method Infer": (
        "Received gRPC method name 'Infer' that does not match the format: <package>.<service>/<method>."
    ),
}
# What the reference lacks, takes without a check, or ends on; docs/compatibility.md has the differences.
OWN = {
    "--request-distribution nope": (
        "Failed to parse --request-distribution. Unsupported type provided: 'nope'. Choices are 'poisson' or "
        "'constant'."
    ),
    f"{FIXED} --concurrency-range 2": f"{SEVERAL_MODES} Found --fixed-schedule and --concurrency-range.",
    "--service-kind nope": (
        "Failed to parse --service-kind. Unsupported type provided: 'nope'. The available options are 'triton', "
        "'in_process', 'triton_c_api', 'openai', 'tfserving', or 'torchserve'."
    ),
    "--service-kind dynamic_grpc": (
        "Failed to parse --service-kind. 'dynamic_grpc' is not supported by naiad perf, which has no client for other "
        "gRPC services. The available options are 'triton', 'in_process', 'openai', 'tfserving', or 'torchserve'."
    ),
    f"--service-kind torchserve --input-data data.json {GRPC}": (
        "perf_analyzer does not support gRPC protocol with TorchServe"
    ),
    "--service-kind torchserve --input-data data.json -b 2": (
        "-b needs to be 1 for torchserve: a request holds one file, and the server makes the batches."
    ),
    "--service-kind tfserving --shared-memory system": (
        "--shared-memory is only supported with --service-kind=triton and in_process, found tfserving."
    ),
    "--service-kind in_process --model-repository nofolder": (
        "Failed to parse --model-repository. There is no folder 'nofolder'."
    ),
    "--enable-mpi": (
        "--enable-mpi is not supported by naiad perf: start one naiad perf for each model. --client-workers spreads "
        "the load of one over processes."
    ),
    "--no-collect-metrics --metrics-url a": ("Must specify --collect-metrics when using the --metrics-url option."),
    "--no-collect-metrics --metrics-interval 5": (
        "Must specify --collect-metrics when using the --metrics-interval option."
    ),
    "--concurrency-range 1:4:0": "Failed to parse --concurrency-range. The <step> value must be > 0.",
    "--concurrency-range -1": "Failed to parse --concurrency-range. Invalid value provided: -1",
    "--request-rate-range 1:4:0": "Failed to parse --request-rate-range. The <step> value must be > 0.",
    "--request-rate-range nan": "Failed to parse --request-rate-range. Invalid value provided: nan",
    "--binary-search -l 5": NEEDS_RANGE,
    "--binary-search -l 5 --concurrency-range 4": NEEDS_RANGE,
    f"{FIXED} --binary-search -l 5": NEEDS_RANGE,
    "--sequence-id-range 5:5": ID_ORDER,
    "--percentile 95.5": PERCENTILE,
    "-p 5s": "Failed to parse -p. Invalid value provided: 5s",
    "-p 99999999999": "Failed to parse -p. Invalid value provided: 99999999999",
    "--trace-rate a": "Failed to parse --trace-rate. Invalid value provided: a",
    "--trace-rate 0": "Failed to parse --trace-rate. The value must be > 0.",
    "-H nocolon": "Failed to parse -H. The header must be specified as 'Header:Value'.",
    f"--request-parameter a:1:float {GRPC}": (
        "Failed to parse --request-parameter. Unsupported type provided: 'float'. The available options are 'bool', "
        "'int', or 'string'."
    ),
    f"--request-parameter a:x:int {GRPC}": (
        "Failed to parse --request-parameter. Expected a whole number as the value of 'a', found 'x'."
    ),
    f"--request-parameter a:x:bool {GRPC}": (
        "Failed to parse --request-parameter. Expected true or false as the value of 'a', found 'x'."
    ),
    "--bls-composing-models a,,b": (
        "Failed to parse --bls-composing-models. Expected names of models with commas between them, such as "
        "'modelA:3,modelB'."
    ),
    "--data-directory nope": f"Failed to parse --data-directory. Unsupported type provided: 'nope'. {INPUT_DATA}",
    "-f nofolder/a.csv": "Failed to parse -f. There is no folder 'nofolder' to write 'a.csv' into.",
    "--html .": "Failed to parse --html. Expected the path of a file, found the folder '.'.",
    "--json nofolder/a.json": "Failed to parse --json. There is no folder 'nofolder' to write 'a.json' into.",
    "--server-pid 0": "Failed to parse --server-pid. The value must be > 0.",
    "--client-workers -1": "Failed to parse --client-workers. The value must be >= 0.",
    "--seed -1": "Failed to parse --seed. The value must be >= 0.",
    "--sweep 4": "Failed to parse --sweep. Expected shape=... or batch=..., found '4'.",
    "--sweep depth=4": "Failed to parse --sweep. Expected shape=... or batch=..., found 'depth'.",
    "--sweep batch=0": "Failed to parse --sweep. Expected a batch size > 0, found '0'.",
    "--sweep shape=3x0": (
        "Failed to parse --sweep. Expected a shape such as 3x224x224 or INPUT0:3x224x224, found '3x0'."
    ),
    "--ssl-grpc-use-ssl=maybe": "Failed to parse --ssl-grpc-use-ssl. Invalid value provided: maybe",
    "-percentile=95": "Failed to parse -p. Invalid value provided: ercentile=95; did you mean '--percentile'?",
    "-json=a": "invalid option -- 'j'; did you mean '--json'?",
    "--latency-treshold 5": "unrecognized option '--latency-treshold'; did you mean '--latency-threshold'?",
    "--seq 3": (
        "option '--seq' is ambiguous; possibilities: '--sequence-length' '--sequence-length-variation' "
        "'--sequence-id-range'"
    ),
}
WITHOUT_A_MODEL = {
    "-b 1": "Failed to parse -m (model name). The value must be specified.",
    "-m": "option requires an argument -- 'm'",
    "--compare data.json": "Failed to parse --compare. Expected two or more JSON files, such as A.json B.json.",
    "--compare data.json nofile": "Failed to parse --compare. There is no file 'nofile'.",
    "--compare data.json gaps.txt -m model --percentile=95": (
        "--compare measures nothing, so that it cannot be used with -m, --percentile."
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with the files that the cases name."""
    monkeypatch.chdir(tmp_path)
    for name in ("data.json", "gaps.txt"):
        (tmp_path / name).write_text("1\n")


def problems(*words: str, **environ: str) -> list[str]:
    with pytest.raises(PerfOptionError) as caught:
        parse_perf(words, environ)
    assert caught.value.exit_code == EXIT_CODE == 3
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("words", "text"), {**AS_THE_REFERENCE, **AS_LATER_RELEASES, **OWN}.items())
def test_a_refusal(words: str, text: str) -> None:
    assert problems("-m", "model", *words.split())[0] == f"Error: {text}"


@pytest.mark.parametrize(("words", "text"), WITHOUT_A_MODEL.items())
def test_a_refusal_without_a_model(words: str, text: str) -> None:
    assert problems(*words.split()) == [f"Error: {text}"]


def test_all_problems_are_said_at_once() -> None:
    assert problems("-mx", "--percentile=0", "--nope", "-b0") == [
        "Error: unrecognized option '--nope'",
        f"Error: {PERCENTILE}",
        "Error: Failed to parse -b (batch size). The value must be > 0.",
    ]
    assert problems("-mx", "--streaming", "--concurrency-range=1:0") == [
        "Error: Streaming is only allowed with gRPC protocol and Triton C API.",
        f"Error: {OPEN_END}",
    ]


def test_an_address_is_one_word() -> None:
    text = "Error: Failed to parse -u. The value must be the address of a server, such as localhost:8000."
    assert problems("-mx", "-u", "") == problems("-mx", "-u", "my host:8000") == [text]


@pytest.mark.parametrize(
    ("address", "port"), [("a:0", 0), ("a:65536", 65536), ("https://a:70000/x", 70000), ("[::1]:0", 0)]
)
def test_a_port_is_one_of_tcp(address: str, port: int) -> None:
    text = f"Error: Failed to parse -u. The port of '{address}' is {port}, expected one from 1 to 65535."
    assert problems("-mx", "-u", address) == [text]


@pytest.mark.parametrize("address", ["a:65535", "a:1/path", "::1", "fe80::0", "[::1]:8000", "grpcs://a"])
def test_addresses_that_are_taken(address: str) -> None:
    assert parse_perf(["-mx", "-u", address], {}).target.url == address


def test_a_wrong_variable_is_named() -> None:
    assert problems("-mx", NAIAD_PERF_MAX_TRIALS="many") == [
        "Error: Failed to parse NAIAD_PERF_MAX_TRIALS. Invalid value provided: many"
    ]
    assert problems("-mx", NAIAD_PERF_STREAMING="maybe") == [
        "Error: Failed to parse NAIAD_PERF_STREAMING. Invalid value provided: maybe"
    ]


def test_cuda_shared_memory_needs_a_gpu(tmp_path: Path) -> None:
    assert not has_gpu(tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert has_gpu(tmp_path)
    if not has_gpu():
        assert problems("-mx", "--shared-memory=cuda") == [
            "Error: Failed to parse --shared-memory. CUDA shared memory needs an NVIDIA GPU in this machine, and none "
            "was found. Use 'system' or 'none'."
        ]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="the system has no /proc")
def test_a_process_that_is_not_there() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pid = ended.pid
    assert problems("-mx", f"--server-pid={pid}") == [
        f"Error: Failed to parse --server-pid. There is no process {pid} on this machine."
    ]


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        ("-z", "-z is deprecated and will be removed in an upcoming version. Use --input-data=zero instead."),
        ("-t 2", "-t is deprecated and will be removed in an upcoming version. Use --concurrency-range instead."),
        ("-c 2", "-c is deprecated and will be removed in an upcoming version. Use --concurrency-range instead."),
        (
            "-d -l 5",
            "-d is deprecated and will be removed in an upcoming version. Use --concurrency-range instead.",
        ),
        (
            "--data-directory .",
            "--data-directory is deprecated and will be removed in an upcoming version. Use --input-data instead.",
        ),
        (
            "--sequence-length 0",
            "The sequence length must be > 0. Perf Analyzer will use default value if it is measuring on sequence "
            "model.",
        ),
        (
            "--sequence-id-range 0:5",
            "using an invalid start sequence id. Perf Analyzer will use default value if it is measuring on sequence "
            "model.",
        ),
        (
            "--triton-server-directory /x",
            "--triton-server-directory has no effect in naiad perf: the model runs in naiad itself, without a library",
        ),
        (
            "--proto a.proto",
            "--proto has no effect in naiad perf: it belongs to --service-kind=dynamic_grpc, which is refused",
        ),
        (
            "--grpc-method a.B/c",
            "--grpc-method has no effect in naiad perf: it belongs to --service-kind=dynamic_grpc, which is refused",
        ),
        ("--endpoint v1", "--endpoint has no effect: it belongs to --service-kind=openai"),
        (
            "--request-intervals gaps.txt --binary-search",
            "--binary-search has no effect with --request-intervals: there is nothing to search",
        ),
        ("--request-distribution poisson", "--request-distribution has no effect without --request-rate-range"),
        ("--verbose-csv", "--verbose-csv has no effect without -f"),
        (
            "--model-signature-name a",
            "--model-signature-name has no effect: it belongs to --service-kind=tfserving",
        ),
        (
            "--service-kind tfserving --input-tensor-format json",
            "--input-tensor-format has no effect: --service-kind=tfserving has nothing of the kind",
        ),
        ("--tfserving-format row", "--tfserving-format has no effect: it belongs to --service-kind=tfserving"),
        (
            f"--service-kind tfserving {GRPC} --tfserving-format row",
            "--tfserving-format has no effect over gRPC, where requests hold whole tensors",
        ),
        (
            "--service-kind in_process --model-repository . --client-workers 2",
            "--client-workers has no effect with --service-kind=in_process: the model runs in this process alone",
        ),
        (
            "--measurement-request-count 5",
            "--measurement-request-count has no effect without --measurement-mode=count_windows",
        ),
        (
            "-p 5 --measurement-mode count_windows",
            "--measurement-interval has no effect with --measurement-mode=count_windows",
        ),
        (
            "-r 5 --request-count 9",
            "--max-trials has no effect with --request-count, whose requests are the only window",
        ),
        (
            "--ssl-grpc-private-key-file data.json",
            "the options --ssl-grpc-* have no effect without -i grpc and --ssl-grpc-use-ssl",
        ),
        (
            "--ssl-https-verify-peer 0",
            "the options --ssl-https-* have no effect without an address that begins with https://",
        ),
        (
            "--ssl-grpc-use-ssl true",
            "the word 'true' belongs to no option; it is ignored, as the reference does",
        ),
    ],
)
def test_what_is_taken_with_a_warning(words: str, warning: str) -> None:
    assert parse_perf(["-m", "model", *words.split()], {}).warnings == (warning,)


def test_defaults_stand_in_for_sequence_settings_that_mean_nothing() -> None:
    load = parse_perf(["-mx", "--sequence-length=0", "--sequence-id-range=0:5"], {}).load
    assert (load.sequence_length, load.sequence_id_range) == (20, (1, 5))

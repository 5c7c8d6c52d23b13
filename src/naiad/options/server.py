"""The table of the server's options: a field declares an option with its kind, default, group and help.

Source of names, defaults and meanings: the reference's ``command_line_parser.cc``. A field ``http_port`` is the flag
``--http-port`` and the environment variable ``NAIAD_HTTP_PORT``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

from naiad.options.api_key import API_KEY, ApiKey, repeated_keys
from naiad.options.backend_settings import remarks_on_misspelt
from naiad.options.cache_config import (
    CACHE_BYTES,
    CACHE_SETTING,
    CacheSetting,
    cache_problems,
    local_cache_bytes,
    redis_cache,
)
from naiad.options.host_policy import HOST_POLICY, HostPolicySetting, affinities
from naiad.options.ignored import BYTES_OF_GPU, COMPUTE_CAPABILITY, SHARE_OF_GPU
from naiad.options.kinds import (
    ADDRESS,
    BACKEND_SETTING,
    BOOLEAN,
    CONFIG_NAME,
    FILE_NAME,
    FLAG,
    FOLDER_NAME,
    HEADER_PATTERN,
    INT32_MAX,
    INT64_MAX,
    LEVEL,
    MILLISECONDS,
    MIRROR,
    PORT,
    PROCESSES,
    REPOSITORY,
    SIZE,
    TEXT,
    BackendSetting,
    choice,
    integer,
)
from naiad.options.latency_objective import LATENCY_OBJECTIVE
from naiad.options.listeners import PORT_RANGE, SAGEMAKER, ListenerAddress, port_problems
from naiad.options.metrics_config import COUNTERS, METRICS_SETTING, MetricsSetting, MetricsValue
from naiad.options.openai import KINDS_OF_MODELS, OPENAI_RESTRICTION, TOOL_CALL_PARSERS
from naiad.options.option import Group, Option, declare
from naiad.options.origin import ORIGIN
from naiad.options.rate_limit import EXECUTION_COUNT, RATE_LIMIT, RESOURCE_SETTING, ResourceSetting
from naiad.options.remote_uri import RemoteUri
from naiad.options.restriction import Restriction, repeated_features, restriction
from naiad.options.trace_config import TRACE_SETTING, TraceSetting, deprecated_trace, trace_problems
from naiad.processes.affinity import server_cores

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from naiad.options.redis_config import RedisSettings
    from naiad.processes.affinity import Affinity

# The reference's own text, its underscores included.
_INFER_THREADS = "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128."

# A command line of the reference should start this server: options that change nothing here cost a warning each.
_OF_GPUS = "Accepted for compatibility, without effect: frameworks manage the memory of GPUs themselves."
_NO_GPUS = "has no effect: frameworks manage the memory of GPUs themselves"
_OF_CLOUD_THREADS = "Accepted for compatibility, without effect: one event loop serves all connections."
_NO_CLOUD_THREADS = "has no effect: one event loop serves all connections"
CORES_PER_FRONT_END: Final = 4
"""The cores for each front-end process with ``--frontend-processes=auto``."""
MOST_FRONT_ENDS: Final = 4
"""The most of them: the engine's process is busy with so many, and more make it slower (``docs/every-core.md``)."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """All settings of one server, each with its default.

    ``paths`` are the positional arguments: model files, one model's folder or repositories. ``warnings`` are remarks
    about the given options, to be logged once the log is set up. ``given`` has the fields of the options that were
    given.
    """

    id: str = declare(Group.SERVER, TEXT, "triton", "Name of this server in its metadata.")
    exit_timeout_secs: int = declare(
        Group.SERVER,
        integer(-INT32_MAX - 1),
        30,
        "Seconds for requests in flight to finish when the server stops; a negative number counts as 0.",
    )
    shutdown_delay: int = declare(
        Group.SERVER,
        integer(0),
        0,
        "Seconds for which a stopping server keeps serving but reports that it is not ready, so that a load "
        "balancer stops sending before requests are refused.",
    )

    pinned_memory_pool_byte_size: int = declare(
        Group.SERVER,
        integer(0, INT64_MAX),
        1 << 28,
        "The most bytes of pinned memory for copies of TensorRT models to and from GPUs; the rest are copied from "
        "ordinary memory, which is slower. Other frameworks manage theirs themselves.",
    )
    cuda_memory_pool_byte_size: tuple[str, ...] = declare(
        Group.SERVER, TEXT, (), _OF_GPUS, repeatable=True, remark=_NO_GPUS
    )
    enable_peer_access: bool = declare(Group.SERVER, BOOLEAN, True, _OF_GPUS, remark=_NO_GPUS)
    cuda_virtual_address_size: tuple[str, ...] = declare(
        Group.SERVER, BYTES_OF_GPU, (), _OF_GPUS, repeatable=True, remark=_NO_GPUS
    )
    min_supported_compute_capability: str = declare(
        Group.SERVER, COMPUTE_CAPABILITY, "7.5", "The smallest compute capability of the GPUs that models may use."
    )
    model_load_gpu_limit: tuple[str, ...] = declare(
        Group.SERVER,
        SHARE_OF_GPU,
        (),
        "The share of a GPU's memory above which no model is loaded onto it. Needs nvidia-ml-py. May be given for "
        "each GPU.",
        repeatable=True,
    )
    buffer_manager_thread_count: int = declare(
        Group.SERVER,
        integer(-INT32_MAX - 1),
        0,
        "Accepted for compatibility, without effect: the thread of an instance assembles its batches.",
        remark="has no effect: the thread of an instance puts its batches together",
    )
    host_policy: tuple[HostPolicySetting, ...] = declare(
        Group.SERVER,
        HOST_POLICY,
        (),
        "A setting of a host policy: cpu-cores are the cores of the instances that have the policy, "
        "numa-node is the node of their memory. Instances have the policy that host_policy of their group "
        "names, else cpu, gpu_<id> or model. The policy frontend is for the event loop.",
        repeatable=True,
    )

    frontend_processes: int = declare(
        Group.SERVER,
        PROCESSES,
        1,
        "Processes that read and answer requests of HTTP and gRPC beside the one that runs the models, all on the same "
        "ports. 1 does both in one process. auto is one for four cores, 4 at most.",
    )

    log_verbose: int = declare(
        Group.LOGGING,
        LEVEL,
        0,
        "Level of verbose messages: 0 for none, 1 for lines about requests, 2 also about batches, 3 also about "
        "connections; true counts as 1.",
    )
    log_info: bool = declare(Group.LOGGING, BOOLEAN, True, "Whether informational messages are logged.")
    log_warning: bool = declare(Group.LOGGING, BOOLEAN, True, "Whether warnings are logged.")
    log_error: bool = declare(Group.LOGGING, BOOLEAN, True, "Whether errors are logged.")
    log_format: str = declare(
        Group.LOGGING,
        choice("default", "ISO8601", "json"),
        "default",
        "The form of a line: it begins with level, month, day and microseconds, or with an ISO 8601 time and the "
        "level, or it is a JSON object. Without this option a terminal gets lines for people.",
    )
    log_file: str = declare(
        Group.LOGGING,
        FILE_NAME,
        "",
        "File that all messages are appended to. Without it informational messages go to standard output, warnings "
        "and errors to standard error. SIGHUP opens it again.",
    )
    log_file_max_bytes: int = declare(
        Group.LOGGING,
        SIZE,
        0,
        "Size beyond which the log file is renamed to <log-file>.1 and a new one begins; 0 for never.",
    )
    log_file_backups: int = declare(
        Group.LOGGING,
        integer(0, 1000),
        5,
        "How many renamed log files are kept: .1 is the latest. With 0 the file itself is emptied.",
    )

    max_in_flight_requests: int = declare(
        Group.OVERLOAD,
        integer(1),
        65_536,
        "The most inference requests in flight, queued or running; further ones are refused.",
    )
    # Less than for all models together: a model that is stuck leaves room for others.
    max_in_flight_requests_per_model: int = declare(
        Group.OVERLOAD, integer(1), 16_384, "The most inference requests in flight to one version of a model."
    )
    max_in_flight_bytes: int = declare(
        Group.OVERLOAD,
        SIZE,
        0,
        "The most bytes of all requests in flight, and again of all bodies that are arriving; 0 for a quarter of "
        "the memory that the server may use.",
    )
    overload_status: str = declare(
        Group.OVERLOAD,
        choice("503", "429"),
        "503",
        "HTTP status of requests that are refused because too many are in flight; gRPC has UNAVAILABLE for 503 and"
        " RESOURCE_EXHAUSTED for 429.",
    )

    model_repository: tuple[Path | RemoteUri, ...] = declare(
        Group.MODEL_REPOSITORY,
        REPOSITORY,
        (),
        "Folder with one folder per model, or the address of one: s3://, gs://, as://, an archive at http:// or "
        "https://, or a model of MLflow (models:/<name>/<version>, runs:/<run>/<path>). Repeat the option for more"
        " repositories.",
        repeatable=True,
        aliases=("model_store",),
    )
    model_repository_mirror: str = declare(
        Group.MODEL_REPOSITORY,
        MIRROR,
        "~/.cache/naiad/mirror",
        "Folder for copies of the models of remote repositories. Files that are there already are not fetched again.",
    )
    model_repository_mirror_size: int = declare(
        Group.MODEL_REPOSITORY,
        SIZE,
        50 << 30,
        "The most bytes of the mirror: beyond, the least recently used copies are removed, except those in use. 0 "
        "for no limit.",
    )
    exit_on_error: bool = declare(
        Group.MODEL_REPOSITORY, BOOLEAN, True, "Whether the server exits when a model cannot be loaded at the start."
    )
    disable_auto_complete_config: bool = declare(
        Group.MODEL_REPOSITORY,
        FLAG,
        False,
        "Do not complete model configurations from the model files: each configuration has to be complete.",
    )
    gpu_fallback: str = declare(
        Group.MODEL_REPOSITORY,
        choice("off", "cpu"),
        "off",
        "What becomes of instance groups of KIND_GPU and of GPU accelerators where there is no GPU: off refuses the "
        "model, cpu serves it on the processor, with a warning.",
    )
    on_gpu_loss: str = declare(
        Group.SERVER,
        choice("report", "exit"),
        "report",
        "What the server does when a failed kernel has taken a GPU from its own process: report is neither live nor "
        "ready, exit also ends with exit code 1 once the requests in flight are finished, for systemd or Docker.",
    )
    strict_readiness: bool = declare(
        Group.MODEL_REPOSITORY,
        BOOLEAN,
        True,
        "Whether the server is ready only when every model is; with false it is ready as soon as it responds.",
    )
    model_control_mode: str = declare(
        Group.MODEL_REPOSITORY,
        choice("none", "poll", "explicit", ignore_case=True),
        "none",
        "How models are loaded and unloaded: with none all are loaded at the start and stay; with poll the "
        "repositories are checked for changes regularly; with explicit the models of --load-model are loaded, and "
        "others over the API.",
    )
    repository_poll_secs: int = declare(
        Group.MODEL_REPOSITORY,
        integer(0),
        15,
        "Seconds between two checks of the repositories with --model-control-mode=poll; 0 for never.",
    )
    load_model: tuple[str, ...] = declare(
        Group.MODEL_REPOSITORY,
        TEXT,
        (),
        "Name of a model to load at the start with --model-control-mode=explicit; * stands for all.",
        repeatable=True,
    )
    auto_warmup: bool = declare(
        Group.MODEL_REPOSITORY,
        FLAG,
        False,
        "Warm up models without model_warmup with zeros before they are ready: one row, each preferred batch size "
        "and the largest batch. A failure of such a warm-up is a warning.",
    )
    accelerator_check: bool = declare(
        Group.MODEL_REPOSITORY,
        FLAG,
        False,
        "Measure each model that has accelerators also without them, on its first warm-up sample, and log "
        "whether it is faster. A model without model_warmup gets the samples of --auto-warmup. Loads take longer.",
    )
    model_config_name: str = declare(
        Group.MODEL_REPOSITORY,
        CONFIG_NAME,
        "",
        "Use configs/<name>.pbtxt of each model that has one, instead of its config.pbtxt.",
    )
    model_namespacing: bool = declare(
        Group.MODEL_REPOSITORY,
        BOOLEAN,
        False,
        "Whether several repositories may have models of the same name: each repository is a namespace then.",
    )
    model_load_thread_count: int = declare(
        Group.MODEL_REPOSITORY, integer(0), 4, "The number of models that are loaded at the same time; 0 counts as 1."
    )
    model_load_retry_count: int = declare(
        Group.MODEL_REPOSITORY,
        integer(0),
        0,
        "The number of retries for a version that fails to load, after pauses that grow from 0.1 to 2 seconds.",
    )
    model_load_wait_secs: int = declare(
        Group.MODEL_REPOSITORY,
        integer(0, 3600),
        10,
        "The most seconds that a load waits for a free core while requests use all of them; 0 for no wait.",
    )
    model_memory_budget: int = declare(
        Group.MODEL_REPOSITORY,
        SIZE,
        0,
        "The most bytes of memory of all models together; 0 for no limit. A load that needs more unloads the least"
        " recently used models.",
    )
    load_on_demand_secs: int = declare(
        Group.MODEL_REPOSITORY,
        integer(0, 3600),
        0,
        "Load a model of a repository when a request needs it; the request waits at most this many seconds. 0 "
        "switches it off.",
    )
    model_idle_unload_secs: int = declare(
        Group.MODEL_REPOSITORY, integer(0), 0, "Seconds without a request after which a model is unloaded; 0 for never."
    )

    allow_http: bool = declare(Group.HTTP, BOOLEAN, True, "Whether the server listens for HTTP requests.")
    http_address: str = declare(
        Group.HTTP, ADDRESS, "0.0.0.0", "Address to listen on for HTTP requests; an IPv6 address is written ipv6:[::1]."
    )
    http_port: int = declare(Group.HTTP, PORT, 8000, "Port to listen on for HTTP requests; 0 takes any free one.")
    reuse_http_port: bool = declare(
        Group.HTTP, BOOLEAN, False, "Whether other servers may listen on the same HTTP port (SO_REUSEPORT)."
    )
    http_thread_count: int = declare(
        Group.HTTP,
        integer(1),
        8,
        "Accepted for compatibility, without effect: one event loop serves all connections.",
        remark="has no effect: one event loop serves all HTTP connections",
    )
    http_max_input_size: int = declare(
        Group.HTTP,
        integer(1, INT64_MAX, below="Error: --http-max-input-size must be greater than 0."),
        1 << 26,
        "Largest JSON of a request, raw input or decompressed body in bytes; larger ones get status 400, or 413 "
        "with --http-standard-status. Binary tensors after a JSON part are bounded by --max-in-flight-bytes.",
    )
    http_standard_status: bool = declare(
        Group.HTTP,
        BOOLEAN,
        False,
        "Whether a refusal has the standard HTTP status where the reference sends 400: 413 for a body that is too "
        "large.",
    )
    http_header_forward_pattern: str = declare(
        Group.HTTP,
        HEADER_PATTERN,
        "",
        "Headers of inference requests become parameters of the request when any part of their name matches; case "
        "is ignored.",
    )
    http_idle_timeout_secs: int = declare(
        Group.HTTP, integer(1), 600, "Seconds after which a connection without a request is closed."
    )
    http_max_connections: int = declare(
        Group.HTTP, integer(1), 10_000, "The most open HTTP connections; further ones get status 503."
    )

    http_port_serves_grpc: bool = declare(
        Group.HTTP,
        BOOLEAN,
        False,
        "Whether the HTTP port serves gRPC as well: a connection that begins with HTTP/2 counts as a gRPC connection.",
    )

    allow_grpc: bool = declare(Group.GRPC, BOOLEAN, True, "Whether the server listens for gRPC requests.")
    grpc_address: str = declare(
        Group.GRPC, ADDRESS, "0.0.0.0", "Address to listen on for gRPC requests; an IPv6 address is written ipv6:[::1]."
    )
    grpc_port: int = declare(Group.GRPC, PORT, 8001, "Port to listen on for gRPC requests; 0 takes any free one.")
    reuse_grpc_port: bool = declare(
        Group.GRPC, BOOLEAN, False, "Whether other servers may listen on the same gRPC port (SO_REUSEPORT)."
    )
    grpc_transport: str = declare(
        Group.GRPC,
        choice("naiad", "grpcio"),
        "naiad",
        "The transport of the gRPC port: Naiad's own HTTP/2, or the grpcio package, which has to be installed.",
    )
    grpc_infer_thread_count: int = declare(
        Group.GRPC,
        integer(2, 128, below=_INFER_THREADS, above=_INFER_THREADS),
        2,
        "Accepted for compatibility, without effect: one event loop serves all connections.",
        remark="has no effect: one event loop serves all gRPC connections",
    )
    grpc_infer_allocation_pool_size: int = declare(
        Group.GRPC,
        integer(-INT32_MAX - 1),
        8,
        "Accepted for compatibility, without effect: requests and responses are not pooled.",
        remark="has no effect: requests and answers are not kept for reuse",
    )
    grpc_max_input_size: int = declare(
        Group.GRPC,
        integer(1, INT32_MAX, below="Error: --grpc-max-input-size must be greater than 0."),
        INT32_MAX,
        "Largest request message in bytes; larger ones end their call with RESOURCE_EXHAUSTED.",
    )
    grpc_max_response_pool_size: int = declare(
        Group.GRPC,
        integer(1, INT32_MAX, below="Error: --grpc-max-response-pool-size must be greater than 0."),
        INT32_MAX,
        "The most responses of decoupled models that wait on one call for a slow caller, before the models are "
        "paused; 256 by default. They are also paused once 1 MiB waits.",
    )
    grpc_header_forward_pattern: str = declare(
        Group.GRPC,
        HEADER_PATTERN,
        "",
        "Metadata of inference calls become parameters of the request when any part of their name matches; case is"
        " ignored.",
    )
    grpc_max_connections: int = declare(
        Group.GRPC, integer(1), 10_000, "The most open gRPC connections; further ones are closed."
    )
    grpc_use_ssl: bool = declare(Group.GRPC, BOOLEAN, False, "Whether the gRPC port is encrypted (TLS 1.2 and later).")
    grpc_use_ssl_mutual: bool = declare(
        Group.GRPC,
        BOOLEAN,
        False,
        "Whether clients need a certificate that an authority of --grpc-root-cert has signed; true switches "
        "--grpc-use-ssl on as well.",
    )
    grpc_server_cert: str = declare(
        Group.GRPC,
        FILE_NAME,
        "",
        "PEM file of the server's certificate, followed by its chain to a root.",
    )
    grpc_server_key: str = declare(
        Group.GRPC, FILE_NAME, "", "PEM file of the private key of the server's certificate, without a password."
    )
    grpc_root_cert: str = declare(
        Group.GRPC,
        FILE_NAME,
        "",
        "PEM file of the authorities that sign clients' certificates, for --grpc-use-ssl-mutual.",
    )
    grpc_infer_response_compression_level: str = declare(
        Group.GRPC,
        choice("none", "low", "medium", "high", ignore_case=True),
        "none",
        "The compression of responses to inference requests, for clients that accept it.",
    )
    grpc_keepalive_time: int = declare(
        Group.GRPC,
        integer(1),
        7_200_000,
        f"Milliseconds without any data after which a client is pinged; {INT32_MAX} for never.",
    )
    grpc_keepalive_timeout: int = declare(
        Group.GRPC,
        integer(1),
        20_000,
        "Milliseconds after which a client that does not acknowledge a ping is disconnected.",
    )
    grpc_keepalive_permit_without_calls: bool = declare(
        Group.GRPC, BOOLEAN, False, "Whether clients without an open call are pinged, and may ping, as well."
    )
    grpc_http2_max_pings_without_data: int = declare(
        Group.GRPC, integer(0), 2, "The most pings that are sent without data in between; 0 for no limit."
    )
    grpc_http2_min_recv_ping_interval_without_data: int = declare(
        Group.GRPC,
        integer(0),
        300_000,
        "The least milliseconds between two pings of a client without data in between.",
    )
    grpc_http2_max_ping_strikes: int = declare(
        Group.GRPC,
        integer(0),
        2,
        "The number of pings that may come too early before the connection is closed (GOAWAY); 0 for no limit.",
    )
    grpc_max_connection_age: int = declare(
        Group.GRPC,
        integer(1),
        INT32_MAX,
        f"Milliseconds after which a connection accepts no new calls (GOAWAY); {INT32_MAX} for never.",
    )
    grpc_max_connection_age_grace: int = declare(
        Group.GRPC,
        integer(0),
        INT32_MAX,
        f"Milliseconds for open calls of such a connection to finish; {INT32_MAX} for no limit.",
    )

    allow_sagemaker: bool = declare(Group.SAGEMAKER, BOOLEAN, False, "Whether requests of Amazon SageMaker are served.")
    sagemaker_address: str = declare(
        Group.SAGEMAKER, ADDRESS, "0.0.0.0", "Address to listen on for requests of SageMaker."
    )
    sagemaker_port: int = declare(
        Group.SAGEMAKER,
        PORT,
        8080,
        "Port to listen on for requests of SageMaker; SAGEMAKER_BIND_TO_PORT is another way to set it.",
    )
    sagemaker_safe_port_range: str = declare(
        Group.SAGEMAKER,
        PORT_RANGE,
        "",
        "The ports that SageMaker leaves to the other listeners; SAGEMAKER_SAFE_PORT_RANGE is another way to set it.",
    )
    sagemaker_thread_count: int = declare(Group.SAGEMAKER, integer(1), 8, _OF_CLOUD_THREADS, remark=_NO_CLOUD_THREADS)
    allow_vertex_ai: bool = declare(
        Group.VERTEX,
        BOOLEAN,
        False,
        "Whether requests of Google Vertex AI are served. AIP_MODE=PREDICTION turns it on, and HTTP and gRPC off.",
    )
    vertex_ai_address: str = declare(
        Group.VERTEX, ADDRESS, "0.0.0.0", "Address to listen on for requests of Vertex AI."
    )
    vertex_ai_port: int = declare(
        Group.VERTEX, PORT, 8080, "Port to listen on for requests of Vertex AI; AIP_HTTP_PORT is another way to set it."
    )
    vertex_ai_thread_count: int = declare(Group.VERTEX, integer(1), 8, _OF_CLOUD_THREADS, remark=_NO_CLOUD_THREADS)
    vertex_ai_default_model: str = declare(
        Group.VERTEX,
        TEXT,
        "",
        "The model that serves predictions of Vertex AI; it may be left out where a single model is loaded.",
    )

    allow_openai: bool = declare(
        Group.OPENAI, BOOLEAN, False, "Whether the API of OpenAI is served: chats, completions, embeddings and models."
    )
    openai_address: str = declare(
        Group.OPENAI, ADDRESS, "0.0.0.0", "Address to listen on for requests of the API of OpenAI."
    )
    openai_port: int = declare(Group.OPENAI, PORT, 9000, "Port to listen on for requests of the API of OpenAI.")
    openai_restricted_api: tuple[Restriction, ...] = declare(
        Group.OPENAI,
        OPENAI_RESTRICTION,
        (),
        "Parts of the API of OpenAI that are served only to requests with the header <key>: <value>.",
        repeatable=True,
    )
    openai_backend: str = declare(
        Group.OPENAI,
        choice("", *KINDS_OF_MODELS),
        "",
        "How all models take requests of this API: with the inputs of the backend for vLLM, or of that for "
        "TensorRT-LLM. Without it the backend and the inputs of each model say it.",
    )
    tokenizer: str = declare(
        Group.OPENAI,
        TEXT,
        "",
        "The tokenizer whose chat template makes prompts of chats: a folder with its files, or its name on Hugging "
        "Face.",
    )
    chat_template: str = declare(
        Group.OPENAI, FILE_NAME, "", "File with a Jinja template in the place of the tokenizer's."
    )
    default_max_tokens: int = declare(
        Group.OPENAI, integer(0), 16, "The most tokens to generate where a request of this API does not say."
    )
    lora_separator: str = declare(
        Group.OPENAI,
        TEXT,
        "",
        "What stands between the name of a model and that of a LoRA adapter in requests of this API; empty for no "
        "adapters.",
    )
    tool_call_parser: str = declare(
        Group.OPENAI,
        choice("", *TOOL_CALL_PARSERS),
        "",
        "The form in which models write calls of tools, which are read out of their texts; empty for texts as they "
        "are.",
    )
    max_tool_call_parse_bytes: int = declare(
        Group.OPENAI,
        integer(1),
        1 << 17,
        "The most bytes of a streamed text in which calls of tools are looked for; a longer one ends with the finish "
        "reason length.",
    )

    http_server_cert: str = declare(
        Group.HTTP,
        FILE_NAME,
        "",
        "PEM file of the server's certificate, followed by its chain to a root. With it the HTTP port is encrypted"
        " (TLS 1.2 and later).",
    )
    http_server_key: str = declare(
        Group.HTTP, FILE_NAME, "", "PEM file of the private key of that certificate, without a password."
    )
    http_root_cert: str = declare(
        Group.HTTP,
        FILE_NAME,
        "",
        "PEM file of the authorities that sign clients' certificates. With it every client needs one.",
    )
    http_cors_origin: tuple[str, ...] = declare(
        Group.HTTP,
        ORIGIN,
        (),
        "Origin whose pages may read responses in a browser, such as https://example.com; * for any.",
        repeatable=True,
    )

    dashboard: str = declare(
        Group.HTTP,
        choice("auto", "on", "off"),
        "auto",
        "Whether the dashboard is served at /dashboard/ on the HTTP port: auto serves it to this machine, and with "
        "API keys to others; on serves it to everybody.",
    )

    http_restricted_api: tuple[Restriction, ...] = declare(
        Group.ACCESS,
        restriction("http-restricted-api", "api"),
        (),
        "HTTP APIs that are served only to requests with the header <key>: <value>.",
        repeatable=True,
    )
    grpc_restricted_protocol: tuple[Restriction, ...] = declare(
        Group.ACCESS,
        restriction("grpc-restricted-protocol", "protocol"),
        (),
        "gRPC protocols that are served only to calls with the metadata triton-grpc-protocol-<key>: <value>.",
        repeatable=True,
    )
    api_key: tuple[ApiKey, ...] = declare(
        Group.ACCESS,
        API_KEY,
        (),
        "An API key: its name, its scopes (infer, manage, observe), its hash, and its limit of requests per "
        "second. With any key, all requests except health checks need one.",
        repeatable=True,
    )
    api_key_file: str = declare(Group.ACCESS, FILE_NAME, "", "File of further API keys, one per line.")

    allow_metrics: bool = declare(Group.METRICS, BOOLEAN, True, "Whether Prometheus metrics are served.")
    allow_gpu_metrics: bool = declare(
        Group.METRICS, BOOLEAN, True, "Whether the metrics include power, use and memory of the GPUs."
    )
    allow_cpu_metrics: bool = declare(
        Group.METRICS, BOOLEAN, True, "Whether the metrics include the machine's processor load and memory."
    )
    metrics_address: str = declare(
        Group.METRICS, ADDRESS, "", "Address to listen on for metrics; without it the HTTP address."
    )
    metrics_port: int = declare(Group.METRICS, PORT, 8002, "Port to listen on for metrics; 0 takes any free one.")
    metrics_interval_ms: int = declare(
        Group.METRICS,
        MILLISECONDS,
        2000,
        "Milliseconds for which a figure of the machine is cached before it is read again.",
    )
    metrics_config: tuple[MetricsSetting, ...] = declare(
        Group.METRICS,
        METRICS_SETTING,
        (),
        "A setting of the metrics: counter_latencies=false leaves out the duration counters, summary_latencies=true "
        "and histogram_latencies=true add distributions, summary_quantiles has the quantiles of summaries.",
        repeatable=True,
    )

    trace_config: tuple[TraceSetting, ...] = declare(
        Group.TRACING,
        TRACE_SETTING,
        (),
        "A setting of request traces: level, rate and count select the requests; triton,file is the file for "
        "traces, or with mode=opentelemetry opentelemetry,url the collector.",
        repeatable=True,
    )

    slo: str = declare(
        Group.BACKEND,
        LATENCY_OBJECTIVE,
        "",
        "Tune models while they serve, for the most throughput at which this share of their requests is within this "
        "time, as in p99=20ms; ,instances=N behind it is the most instances of a model. A model's parameter slo goes "
        "first.",
    )
    slow_requests: int = declare(
        Group.TRACING,
        integer(0, 10_000),
        0,
        "How many slow requests are kept with their causes, for GET /v2/traces/slow; 0 records none.",
    )

    repoagent_directory: str = declare(
        Group.MODEL_REPOSITORY,
        FOLDER_NAME,
        "/opt/tritonserver/repoagents",
        "Folder of repository agents: the file NAME/agent.py in it is the agent NAME.",
    )
    # Not 0 by default: an agent that never returns must not hold a load for ever.
    repoagent_timeout_secs: int = declare(
        Group.MODEL_REPOSITORY,
        integer(0),
        600,
        "Seconds that a repository agent may take for one action; a load whose agent takes longer fails. 0 for no "
        "limit.",
    )

    backend_directory: str = declare(
        Group.BACKEND,
        FOLDER_NAME,
        "/opt/tritonserver/backends",
        "Folder of Python-based backends: the file NAME/model.py in it runs every model with the backend NAME.",
    )
    backend_config: tuple[BackendSetting, ...] = declare(
        Group.BACKEND,
        BACKEND_SETTING,
        (),
        "A setting of one backend, as in onnxruntime,default-max-batch-size=8, or of all backends without a "
        "backend's name.",
        repeatable=True,
    )

    cache_config: tuple[CacheSetting, ...] = declare(
        Group.CACHE,
        CACHE_SETTING,
        (),
        "Cache responses of models with response_cache { enable: true }: in memory, as in local,size=104857600 "
        "(bytes), or in Redis, as in redis,host=localhost and, repeated, redis,port=6379.",
        repeatable=True,
    )
    cache_directory: str = declare(
        Group.CACHE,
        FOLDER_NAME,
        "",
        "Accepted for compatibility, without effect: caches are part of naiad.",
        remark="has no effect: caches are part of naiad",
    )

    rate_limit: str = declare(
        Group.RATE_LIMITER,
        RATE_LIMIT,
        "off",
        "With execution_count an instance runs when it has the resources of its rate_limiter; instances take turns"
        " by their number of runs and their priority. With off rate_limiter is ignored.",
    )
    rate_limit_resource: tuple[ResourceSetting, ...] = declare(
        Group.RATE_LIMITER,
        RESOURCE_SETTING,
        (),
        "The available amount of a resource, on a device or, without one, on each. The default is the most that "
        "one instance needs. Names are case-insensitive.",
        repeatable=True,
    )

    allow_client_shm: bool = declare(
        Group.SHARED_MEMORY,
        BOOLEAN,
        False,
        "Whether clients may register shared memory and place tensors there instead of sending them.",
    )

    strict_model_config: bool = declare(
        Group.DEPRECATED,
        BOOLEAN,
        False,
        "True is the same as --disable-auto-complete-config.",
        remark="is deprecated: use --disable-auto-complete-config",
    )
    trace_file: tuple[TraceSetting, ...] = declare(
        Group.DEPRECATED,
        deprecated_trace("triton,file", "<path>"),
        (),
        "The same as --trace-config triton,file=<path>.",
        repeatable=True,
        remark="is deprecated: use --trace-config",
    )
    response_cache_byte_size: tuple[CacheSetting, ...] = declare(
        Group.DEPRECATED,
        CACHE_BYTES,
        (),
        "The same as --cache-config local,size=<bytes>.",
        repeatable=True,
        remark="is deprecated: use --cache-config",
    )
    trace_level: tuple[TraceSetting, ...] = declare(
        Group.DEPRECATED,
        deprecated_trace("level", "<level>"),
        (),
        "The same as --trace-config level=<level>.",
        repeatable=True,
        remark="is deprecated: use --trace-config",
    )
    trace_rate: tuple[TraceSetting, ...] = declare(
        Group.DEPRECATED,
        deprecated_trace("rate", "<integer>"),
        (),
        "The same as --trace-config rate=<integer>.",
        repeatable=True,
        remark="is deprecated: use --trace-config",
    )
    trace_count: tuple[TraceSetting, ...] = declare(
        Group.DEPRECATED,
        deprecated_trace("count", "<integer>"),
        (),
        "The same as --trace-config count=<integer>.",
        repeatable=True,
        remark="is deprecated: use --trace-config",
    )
    trace_log_frequency: tuple[TraceSetting, ...] = declare(
        Group.DEPRECATED,
        deprecated_trace("triton,log-frequency", "<integer>"),
        (),
        "The same as --trace-config triton,log-frequency=<integer>.",
        repeatable=True,
        remark="is deprecated: use --trace-config",
    )

    paths: tuple[Path | RemoteUri, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        """Settle the values that follow from others."""
        # The class is frozen.
        set_field = object.__setattr__
        set_field(self, "exit_timeout_secs", max(0, self.exit_timeout_secs))
        set_field(self, "model_load_thread_count", max(1, self.model_load_thread_count))
        if self.model_control_mode != "poll":
            set_field(self, "repository_poll_secs", 0)
        set_field(self, "metrics_address", self.metrics_address or self.http_address)
        set_field(self, "allow_cpu_metrics", self.allow_cpu_metrics and self.allow_metrics)
        set_field(self, "allow_gpu_metrics", self.allow_gpu_metrics and self.allow_metrics)
        deprecated = (
            *self.trace_file,
            *self.trace_level,
            *self.trace_rate,
            *self.trace_count,
            *self.trace_log_frequency,
        )
        # In this order: of several values the last one counts, and the option that replaces the deprecated ones wins.
        set_field(self, "trace_config", (*deprecated, *self.trace_config))
        if self.strict_model_config:
            set_field(self, "disable_auto_complete_config", True)
        if self.grpc_use_ssl_mutual:
            set_field(self, "grpc_use_ssl", True)
        set_field(self, "warnings", (*self.warnings, *self._without_effect()))

    def _without_effect(self) -> Iterator[str]:
        """A remark on each option that has no effect beside the others."""
        if self.disable_auto_complete_config and "strict_model_config" in self.given and not self.strict_model_config:
            yield "--strict-model-config=false has no effect beside --disable-auto-complete-config"
        if (self.grpc_server_cert or self.grpc_server_key) and not self.grpc_use_ssl:
            yield "--grpc-server-cert and --grpc-server-key have no effect without --grpc-use-ssl=true"
        if "repository_poll_secs" in self.given and self.model_control_mode != "poll":
            yield "--repository-poll-secs has no effect without --model-control-mode=poll"
        if self.rate_limit_resource and not self.limits_rate:
            yield "--rate-limit-resource has no effect without --rate-limit=execution_count"
        yield from remarks_on_misspelt(self.backend_config)

    @property
    def http_uses_tls(self) -> bool:
        """Whether the HTTP port uses TLS: any of its TLS files is given."""
        return bool(self.http_server_cert or self.http_server_key or self.http_root_cert)

    @property
    def serves_grpc(self) -> bool:
        """Whether gRPC is served on any port."""
        return self.allow_grpc or self.http_port_serves_grpc

    @property
    def frontend_count(self) -> int:
        """How many processes read requests; 1 for the process that runs the models."""
        found = min(MOST_FRONT_ENDS, len(server_cores()) // CORES_PER_FRONT_END)
        return self.frontend_processes or max(1, found)

    def wanted_models(self, known: Collection[str]) -> set[str]:
        """The names of the models to load at the start, given the ``known`` ones; unknown names may be among them.

        With namespaces the known names are keys, and a name stands for all keys that end with it.
        """
        if self.model_control_mode != "explicit" or self.load_model == ("*",):
            return set(known)
        if not self.model_namespacing:
            return set(self.load_model)
        found = {name: {key for key in known if key.rpartition("/")[2] == name} for name in self.load_model}
        # An unknown name stays, so that its model is reported as missing.
        return {key for name, keys in found.items() for key in keys or {name}}

    @property
    def polls(self) -> bool:
        """Whether the repositories are polled for changes."""
        return self.repository_poll_secs > 0

    @property
    def counter_latencies(self) -> bool:
        """Whether the duration counters are served (``--metrics-config counter_latencies=<boolean>``)."""
        return self.metrics_setting(COUNTERS, True) is True

    def metrics_setting(self, name: str, default: MetricsValue) -> MetricsValue:
        """The last ``--metrics-config`` value of a setting."""
        return next((s.value for s in reversed(self.metrics_config) if s.name == name), default)

    @property
    def backend_settings(self) -> dict[str, dict[str, str]]:
        """The ``--backend-config`` settings by backend, those of all backends under ""; the last value of a key counts.

        ``--backend-directory`` is a setting of all backends, ``backend-directory``.
        """
        settings: dict[str, dict[str, str]] = {"": {"backend-directory": self.backend_directory}}
        for item in self.backend_config:
            settings.setdefault(item.backend, {})[item.key] = item.value
        return settings

    @property
    def limits_rate(self) -> bool:
        """Whether instances share resources (``--rate-limit=execution_count``)."""
        return self.rate_limit == EXECUTION_COUNT

    @property
    def local_cache_bytes(self) -> int:
        """The size of the response cache in memory, 0 for none."""
        return local_cache_bytes((*self.cache_config, *self.response_cache_byte_size))

    def redis_cache(self, environment: Mapping[str, str]) -> RedisSettings | None:
        """The settings of the response cache in Redis; None without one.

        ``environment`` may have the user and the password.
        """
        return redis_cache(self.cache_config, environment)

    @property
    def host_policies(self) -> Mapping[str, Affinity]:
        """The host policies by name; of a setting that is given twice the last one counts."""
        return affinities(self.host_policy)

    def settings_of(self, backend: str) -> Mapping[str, str]:
        """The settings of one backend: those of all backends, overridden by its own."""
        settings = self.backend_settings
        return settings[""] | settings.get(backend, {})

    def problems(self) -> list[str]:
        """The conflicts among the options; empty without any."""
        listeners = (
            ListenerAddress("HTTP", self.allow_http, self.http_address, self.http_port),
            ListenerAddress("GRPC", self.allow_grpc, self.grpc_address, self.grpc_port),
            ListenerAddress("metrics", self.allow_metrics, self.metrics_address, self.metrics_port),
            ListenerAddress(SAGEMAKER, self.allow_sagemaker, self.sagemaker_address, self.sagemaker_port),
            ListenerAddress("Vertex AI", self.allow_vertex_ai, self.vertex_ai_address, self.vertex_ai_port),
            ListenerAddress("OpenAI", self.allow_openai, self.openai_address, self.openai_port),
        )
        found = [
            *cache_problems(self.cache_config, self.response_cache_byte_size),
            *self._tls_problems(),
            *self._repository_problems(),
            *self._access_problems(),
            *trace_problems(self.trace_config),
        ]
        if self.http_port_serves_grpc and not self.allow_http:
            found.append("--http-port-serves-grpc needs the HTTP port: leave it out, or set --allow-http=true")
        return found + port_problems(listeners, self.sagemaker_safe_port_range)

    def _repository_problems(self) -> Iterator[str]:
        if self.load_model and self.model_control_mode != "explicit":
            yield "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well."
        if "*" in self.load_model and len(self.load_model) > 1:
            yield "Wildcard model name '*' must be the ONLY startup model if specified at all."
        if self.model_idle_unload_secs and not self.load_on_demand_secs:
            yield "--model-idle-unload-secs needs --load-on-demand-secs: nothing else would load the models again"

    def _access_problems(self) -> Iterator[str]:
        yield from repeated_features(self.http_restricted_api, "api")
        yield from repeated_features(self.grpc_restricted_protocol, "protocol")
        yield from repeated_features(self.openai_restricted_api, "api")
        yield from repeated_keys(self.api_key)

    def _tls_problems(self) -> Iterator[str]:
        if self.allow_grpc and self.grpc_use_ssl and not (self.grpc_server_cert and self.grpc_server_key):
            yield "--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key: name the server's two PEM files"
        if self.allow_grpc and self.grpc_use_ssl_mutual and not self.grpc_root_cert:
            yield "--grpc-use-ssl-mutual needs --grpc-root-cert: name the PEM file that vouches for the clients"
        if self.allow_http and self.http_uses_tls and not (self.http_server_cert and self.http_server_key):
            yield "TLS on the HTTP port needs --http-server-cert and --http-server-key: name the server's two PEM files"


OPTIONS: tuple[Option, ...] = tuple(
    replace(f.metadata["option"], field=f.name) for f in fields(ServerOptions) if "option" in f.metadata
)

LISTENER_FIELDS = frozenset(
    {
        "allow_http",
        "http_address",
        "http_port",
        "http_port_serves_grpc",
        "http_server_cert",
        "http_server_key",
        "http_root_cert",
        "cache_config",
        "response_cache_byte_size",
        "allow_grpc",
        "grpc_address",
        "grpc_port",
        "grpc_use_ssl",
        "grpc_use_ssl_mutual",
        "grpc_server_cert",
        "grpc_server_key",
        "grpc_root_cert",
        "allow_metrics",
        "metrics_address",
        "metrics_port",
        "allow_sagemaker",
        "sagemaker_port",
        "sagemaker_safe_port_range",
        "allow_vertex_ai",
        "vertex_ai_port",
        "allow_openai",
        "openai_port",
    }
)
"""The fields that ``ServerOptions.problems`` checks; it is skipped when one of them could not be read."""

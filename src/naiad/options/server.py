"""The table of the server's options: one field is one option, and says all there is to say about it.

Source of names, defaults and meanings: the reference's ``command_line_parser.cc``. A field ``http_port`` is the flag
``--http-port`` and the environment variable ``NAIAD_HTTP_PORT``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from naiad.options.kinds import (
    ADDRESS,
    BACKEND_SETTING,
    BOOLEAN,
    FILE_NAME,
    FLAG,
    FOLDER,
    INT32_MAX,
    INT64_MAX,
    LEVEL,
    NAME,
    PORT,
    TEXT,
    BackendSetting,
    choice,
    integer,
    metrics_setting,
)
from naiad.options.option import Group, Option, declare

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_METRICS_SETTING = metrics_setting(
    {"counter_latencies": True, "summary_latencies": False, "histogram_latencies": False}, ("summary_quantiles",)
)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """All settings of one server, each with its default.

    ``paths`` are the positional arguments: model files, one model's folder or repositories. ``warnings`` are remarks
    on the way the options were given, to be logged once the log is set up.
    """

    id: str = declare(Group.SERVER, TEXT, "triton", "Name of this server in its metadata.")
    exit_timeout_secs: int = declare(
        Group.SERVER,
        integer(-INT32_MAX - 1),
        30,
        "Seconds that requests in flight get to finish when the server is told to stop; a negative number counts as 0.",
    )

    log_verbose: int = declare(
        Group.LOGGING,
        LEVEL,
        0,
        "Level of verbose messages: 0 for none, 1 for a line about every HTTP request; true counts as 1.",
    )
    log_info: bool = declare(Group.LOGGING, BOOLEAN, True, "Whether informational messages are logged.")
    log_warning: bool = declare(Group.LOGGING, BOOLEAN, True, "Whether warnings are logged.")
    log_error: bool = declare(Group.LOGGING, BOOLEAN, True, "Whether errors are logged.")
    log_format: str = declare(
        Group.LOGGING,
        choice("default", "ISO8601"),
        "default",
        "How a line begins: level, month, day and microseconds, or an ISO 8601 time and the level.",
    )
    log_file: str = declare(
        Group.LOGGING,
        FILE_NAME,
        "",
        "File that all messages are appended to. Without it informational messages go to standard output, warnings "
        "and errors to standard error.",
    )

    model_repository: tuple[Path, ...] = declare(
        Group.MODEL_REPOSITORY,
        FOLDER,
        (),
        "Folder that holds one folder per model. Give it again for more repositories.",
        repeatable=True,
        aliases=("model_store",),
    )
    exit_on_error: bool = declare(
        Group.MODEL_REPOSITORY, BOOLEAN, True, "Whether the server ends when a model cannot be loaded at the start."
    )
    disable_auto_complete_config: bool = declare(
        Group.MODEL_REPOSITORY,
        FLAG,
        False,
        "Do not fill in missing parts of a model configuration from the model file: each has to be complete.",
    )
    strict_readiness: bool = declare(
        Group.MODEL_REPOSITORY,
        BOOLEAN,
        True,
        "Whether the server is ready only when every model is; with false it is ready as soon as it answers.",
    )
    model_control_mode: str = declare(
        Group.MODEL_REPOSITORY,
        choice("none", ignore_case=True, not_yet=("poll", "explicit")),
        "none",
        "How models come and go: with none all are loaded at the start and stay.",
    )
    model_config_name: str = declare(
        Group.MODEL_REPOSITORY,
        NAME,
        "",
        "Use configs/<name>.pbtxt of each model that has it, in place of its config.pbtxt.",
    )
    model_load_thread_count: int = declare(
        Group.MODEL_REPOSITORY, integer(1), 4, "How many models are loaded at the same time."
    )

    allow_http: bool = declare(Group.HTTP, BOOLEAN, True, "Whether the server listens for HTTP requests.")
    http_address: str = declare(
        Group.HTTP, ADDRESS, "0.0.0.0", "Address to listen on for HTTP requests; ipv6:[::1] is the form for IPv6."
    )
    http_port: int = declare(Group.HTTP, PORT, 8000, "Port to listen on for HTTP requests; 0 takes any free one.")
    reuse_http_port: bool = declare(
        Group.HTTP, BOOLEAN, False, "Whether other servers may listen on the same HTTP port (SO_REUSEPORT)."
    )
    http_thread_count: int = declare(
        Group.HTTP,
        integer(1),
        8,
        "Taken for compatibility, without effect: one event loop serves all connections.",
        remark="has no effect: one event loop serves all HTTP connections",
    )
    http_max_input_size: int = declare(
        Group.HTTP,
        integer(1, INT64_MAX, below="Error: --http-max-input-size must be greater than 0."),
        1 << 26,
        "Largest body of a request in bytes; larger ones are answered 413.",
    )
    http_idle_timeout_secs: int = declare(
        Group.HTTP, integer(1), 600, "Seconds after which a connection without a request is closed."
    )
    http_max_connections: int = declare(
        Group.HTTP, integer(1), 10_000, "How many HTTP connections may be open; those beyond are answered 503."
    )

    allow_metrics: bool = declare(Group.METRICS, BOOLEAN, True, "Whether Prometheus metrics are served.")
    allow_gpu_metrics: bool = declare(
        Group.METRICS, BOOLEAN, True, "Taken for compatibility: this version has no GPU figures to serve."
    )
    allow_cpu_metrics: bool = declare(
        Group.METRICS, BOOLEAN, True, "Whether the metrics hold the machine's processor load and memory."
    )
    metrics_address: str = declare(
        Group.METRICS, ADDRESS, "", "Address to listen on for metrics; without it the HTTP address."
    )
    metrics_port: int = declare(Group.METRICS, PORT, 8002, "Port to listen on for metrics; 0 takes any free one.")
    metrics_interval_ms: int = declare(
        Group.METRICS,
        integer(1),
        2000,
        "Milliseconds for which a figure of the machine is kept before it is read again.",
    )
    metrics_config: tuple[tuple[str, bool], ...] = declare(
        Group.METRICS,
        _METRICS_SETTING,
        (),
        "A setting of the metrics: counter_latencies=false leaves out the duration counters.",
        repeatable=True,
    )

    backend_config: tuple[BackendSetting, ...] = declare(
        Group.BACKEND,
        BACKEND_SETTING,
        (),
        "A setting of one backend, as in onnxruntime,default-max-batch-size=8, or without a backend's name of all.",
        repeatable=True,
    )

    strict_model_config: bool = declare(
        Group.DEPRECATED,
        BOOLEAN,
        False,
        "With true the same as --disable-auto-complete-config.",
        remark="is deprecated: use --disable-auto-complete-config",
    )

    paths: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Settle the values that follow from others."""
        set_field = object.__setattr__
        set_field(self, "exit_timeout_secs", max(0, self.exit_timeout_secs))
        set_field(self, "metrics_address", self.metrics_address or self.http_address)
        set_field(self, "allow_cpu_metrics", self.allow_cpu_metrics and self.allow_metrics)
        set_field(self, "allow_gpu_metrics", self.allow_gpu_metrics and self.allow_metrics)
        if self.strict_model_config:
            set_field(self, "disable_auto_complete_config", True)

    @property
    def counter_latencies(self) -> bool:
        """Whether the duration counters are served (``--metrics-config counter_latencies=<boolean>``)."""
        return dict(self.metrics_config).get("counter_latencies", True)

    @property
    def backend_settings(self) -> dict[str, dict[str, str]]:
        """The ``--backend-config`` settings by backend, those of all backends under ""; the last of a key counts."""
        settings: dict[str, dict[str, str]] = {"": {}}
        for item in self.backend_config:
            settings.setdefault(item.backend, {})[item.key] = item.value
        return settings

    def settings_of(self, backend: str) -> Mapping[str, str]:
        """What holds for one backend: the settings of all backends, overridden by its own."""
        settings = self.backend_settings
        return settings[""] | settings.get(backend, {})

    def problems(self) -> list[str]:
        """What is wrong about the options taken together; empty when nothing is."""
        listeners = (
            ("HTTP", self.allow_http, self.http_address, self.http_port),
            ("metrics", self.allow_metrics, self.metrics_address, self.metrics_port),
        )
        taken: dict[tuple[str, int], str] = {}
        found: list[str] = []
        for name, allowed, address, port in listeners:
            if not allowed or port == 0:
                continue
            other = taken.setdefault((address, port), name)
            if other is not name:
                found.append(
                    f"The server cannot listen to {other} requests and {name} requests at the same address and port "
                    f"{address}:{port}"
                )
        return found


OPTIONS: tuple[Option, ...] = tuple(
    replace(f.metadata["option"], field=f.name) for f in fields(ServerOptions) if "option" in f.metadata
)

LISTENER_FIELDS = frozenset(
    {"allow_http", "http_address", "http_port", "allow_metrics", "metrics_address", "metrics_port"}
)

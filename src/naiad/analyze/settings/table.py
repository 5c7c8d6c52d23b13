"""Every key of the configuration files, and its option. Names and defaults are those of the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from naiad.analyze.settings.kinds import (
    ANYTHING,
    BOOLEAN,
    CHARTS,
    FLAG,
    MAPPING,
    PATH,
    SIZE_LISTS,
    TEXT,
    WORDS,
    KeyKind,
    choice,
    number,
    numbers,
    whole,
)

PROFILE: Final = "profile"
REPORT: Final = "report"


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        letter: of the short option, if there is one.
        has_option: whether it can be given on the command line.
        help: empty for what has no effect here, which the key is then listed with.
        is_own: whether the reference lacks it.
    """

    name: str
    kind: KeyKind
    default: Any = None
    help: str = ""
    letter: str = ""
    has_option: bool = True
    is_own: bool = False
    commands: tuple[str, ...] = (PROFILE,)

    @property
    def flag(self) -> str:
        """The option."""
        return "--" + self.name.replace("_", "-")


_BOTH: Final = (PROFILE, REPORT)
MODES: Final = ("halving", "brute", "quick", "optuna")
LAUNCH_MODES: Final = ("local", "remote", "c_api", "docker")

_GENERAL: Final = (
    Key("config_file", PATH, None, "The YAML file with these keys.", "f", commands=_BOTH),
    Key("checkpoint_directory", PATH, Path("checkpoints"), "Where measurements are kept.", "s", commands=_BOTH),
    Key("export_path", PATH, Path(), "Where results and reports are written.", "e", commands=_BOTH),
    Key("model_repository", PATH, None, "The folder with the models.", "m"),
    Key("profile_models", ANYTHING, None, "The models: names, or a mapping with settings for each."),
    Key("model_type", choice("generic", "LLM"), "generic", "Which kind of models: generic, or LLM."),
    Key("output_model_repository_path", PATH, None, "Where the best configurations are written as models."),
    Key("override_output_model_repository", FLAG, False, "Write into that folder even if it is not empty."),
    Key("gpus", WORDS, ("all",), "The UUIDs of the GPUs that are reported; 'all' for every one."),
    Key("always_report_gpu_metrics", FLAG, False, commands=_BOTH),
    Key("skip_summary_reports", FLAG, False, "Write no tables and no summary."),
    Key("skip_detailed_reports", FLAG, False, "Write no detailed report of the best configurations."),
    Key("duration_seconds", whole(0), 3, "How long the idle server is looked at, in seconds.", "d"),
    Key("monitoring_interval", number(0.01), 1.0, "Seconds between looks at the server's metrics.", "i"),
    Key("collect_cpu_metrics", FLAG, False, "Show the memory of the server in the table of the measurements."),
    Key("dcgm_disable", FLAG, False),
)
_LOAD: Final = (
    Key("batch_sizes", numbers(), (1,), "Rows of a request.", "b"),
    Key("concurrency", numbers(), None, "Requests in flight; searched where it is not given.", "c"),
    Key("request_rate", numbers(), None, "Requests a second, in place of a concurrency."),
    Key("client_protocol", choice("http", "grpc"), "grpc", "http or grpc."),
    Key("perf_analyzer_flags", MAPPING, None, "Options of naiad perf.", has_option=False),
    Key("perf_analyzer_timeout", whole(1), 600, "The longest time of one measurement, in seconds."),
    Key("perf_analyzer_max_auto_adjusts", whole(0), 10, "How often windows are made longer for slow models."),
    Key("perf_output", FLAG, False, "Write a line for each measurement with all its figures."),
    Key("perf_output_path", PATH, None, "The file for those lines; standard error without it."),
    Key("genai_perf_flags", MAPPING, None, has_option=False),
    Key("perf_analyzer_path", TEXT, "perf_analyzer"),
    Key("perf_analyzer_cpu_util", number(), None),
    Key("client_max_retries", whole(0), 50, "", "r"),
)
_SERVER: Final = (
    Key("triton_launch_mode", choice(*LAUNCH_MODES), "local", "local, remote or c_api (in this process)."),
    Key("triton_http_endpoint", TEXT, "localhost:8000", "Where the server speaks HTTP."),
    Key("triton_grpc_endpoint", TEXT, "localhost:8001", "Where the server speaks gRPC."),
    Key("triton_metrics_url", TEXT, "http://localhost:8002/metrics", "The server's metrics page."),
    Key("triton_server_path", TEXT, "naiad", "The server that local mode starts: naiad or tritonserver."),
    Key("triton_server_flags", MAPPING, None, "Options of the server.", has_option=False),
    Key("triton_server_environment", MAPPING, None, "Variables of the server's environment.", has_option=False),
    Key("triton_output_path", PATH, None, "The file for the server's log."),
    Key("reload_model_disable", FLAG, False, "Measure the models as they are loaded: nothing is changed."),
    Key("triton_install_path", TEXT, "/opt/tritonserver"),
    Key("triton_docker_image", TEXT, None),
    Key("triton_docker_mounts", WORDS, None),
    Key("triton_docker_shm_size", TEXT, None),
    Key("triton_docker_labels", MAPPING, None, has_option=False),
    Key("triton_docker_args", MAPPING, None, has_option=False),
)
_LIMITS: Final = (
    ("min_concurrency", 1, "The least concurrency."),
    ("max_concurrency", 1024, "The greatest concurrency."),
    ("min_request_rate", 16, "The least request rate."),
    ("max_request_rate", 8192, "The greatest request rate."),
    ("min_instance_count", 1, "The fewest instances."),
    ("max_instance_count", 5, "The most instances."),
    ("min_model_batch_size", 1, "The least max_batch_size."),
    ("max_model_batch_size", 128, "The greatest max_batch_size."),
)
_SEARCH: Final = (
    Key("run_config_search_mode", choice(*MODES), "halving", "How the best is looked for: halving is Naiad's own."),
    *(Key(f"run_config_search_{name}", whole(1), default, text) for name, default, text in _LIMITS),
    Key("run_config_search_max_binary_search_steps", whole(0), 5, "Steps towards a limit of the latency."),
    Key("run_config_search_disable", FLAG, False, "Measure only what is listed."),
    Key("run_config_profile_models_concurrently_enable", FLAG, False, "All models at the same time."),
    Key("request_rate_search_enable", FLAG, False, "Search the request rate in place of the concurrency."),
    Key("concurrency_sweep_disable", FLAG, False, "No other loads for the best configurations."),
    Key("early_exit_enable", FLAG, False),
    Key("use_concurrency_formula", FLAG, False),
    Key("min_percentage_of_search_space", whole(1, 100), 5, "The fewest trials of optuna, in percent."),
    Key("max_percentage_of_search_space", whole(1, 100), 10, "The most trials of optuna, in percent."),
    Key("optuna_min_trials", whole(1), None, "The fewest trials of optuna."),
    Key("optuna_max_trials", whole(1), None, "The most trials of optuna."),
    Key("optuna_early_exit_threshold", whole(1), 10, "Trials without a gain that end optuna."),
    Key("bls_composing_models", ANYTHING, None, "Models that a model with business logic calls."),
    Key("ensemble_composing_models", ANYTHING, None, "Steps of an ensemble, with settings for each."),
    Key("cpu_only_composing_models", WORDS, (), "Of these, the models that run on processors alone."),
)
_GOAL: Final = (
    Key("objectives", ANYTHING, None, "What is wanted: metrics, or metrics with weights.", has_option=False),
    Key("constraints", ANYTHING, None, "Limits of metrics: min or max.", has_option=False),
    Key("weighting", number(), None, "How much a model counts beside others.", has_option=False),
    Key("latency_budget", number(0.001), None, "The greatest p99 latency in ms."),
    Key("min_throughput", number(0.001), None, "The least throughput in inferences a second."),
)
_RESULTS: Final = (
    Key("num_configs_per_model", whole(1), 3, "How many of the best configurations the reports show."),
    Key("num_top_model_configs", whole(0), 0, "How many of the best over all models a summary shows."),
    Key("filename_model_inference", TEXT, "metrics-model-inference.csv", "The table of the measurements."),
    Key("filename_model_gpu", TEXT, "metrics-model-gpu.csv", "The table of the GPUs."),
    Key("filename_server_only", TEXT, "metrics-server-only.csv", "The table of the idle server."),
    Key("inference_output_fields", WORDS, None, "The columns of the table of the measurements."),
    Key("gpu_output_fields", WORDS, None, "The columns of the table of the GPUs."),
    Key("server_output_fields", WORDS, None, "The columns of the table of the idle server."),
    Key("report_model_configs", ANYTHING, None, "The configurations of detailed reports.", "n", commands=(REPORT,)),
    Key("output_formats", WORDS, ("html",), "", "o", commands=(REPORT,)),
    Key("plots", CHARTS, None, "Further charts, by x_axis and y_axis.", has_option=False, commands=_BOTH),
    Key("report_concurrency", whole(1), None, "The concurrency that a report is about.", is_own=True, commands=_BOTH),
    Key("report_request_rate", whole(1), None, "The request rate that a report is about.", is_own=True, commands=_BOTH),
)
_OWN: Final = (
    Key("search_delay_microseconds", numbers(0), None, "Queue delays that are tried.", is_own=True),
    Key("search_preferred_batch_sizes", SIZE_LISTS, None, "Preferred sizes that are tried.", is_own=True),
    Key("search_threads", numbers(), None, "Threads of an instance that are tried.", is_own=True),
    Key("search_execution", WORDS, None, "Where instances run: thread, process, shared.", is_own=True),
    Key("search_measurements", whole(2), None, "The most measurements of a search.", is_own=True),
    Key("search_seed", whole(0), 0, "Makes the same choices again.", is_own=True),
    Key("window_ms", whole(10), 150, "The length of the shortest windows.", is_own=True),
    Key("input_data", TEXT, None, "Data of requests, as naiad perf takes it with --input-data.", is_own=True),
    Key("recorded_traffic", PATH, None, "Requests with their times, as for --fixed-schedule.", is_own=True),
    Key("search_model_sets", BOOLEAN, False, "Measure which models fit the machine together.", is_own=True),
)
KEYS: Final = (*_GENERAL, *_LOAD, *_SERVER, *_SEARCH, *_GOAL, *_RESULTS, *_OWN)
BY_NAME: Final = {key.name: key for key in KEYS}


def keys_of(command: str) -> dict[str, Key]:
    """The keys of a command, by name."""
    return {key.name: key for key in KEYS if command in key.commands}

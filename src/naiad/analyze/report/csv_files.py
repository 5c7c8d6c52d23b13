"""The tables with the reference's columns: the measurements, the GPUs, and the idle server."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from naiad.analyze.files import write_whole
from naiad.analyze.measurement import ALIASES, Measurement
from naiad.analyze.result import Analysis, ModelProfile
from naiad.analyze.settings.settings import AnalyzeSettings
from naiad.analyze.trial import changed_config

HEADERS: Final = {
    "model_name": "Model",
    "batch_size": "Batch",
    "concurrency": "Concurrency",
    "request_rate": "Request Rate",
    "model_config_path": "Model Config Path",
    "instance_group": "Instance Group",
    "max_batch_size": "Max Batch Size",
    "satisfies_constraints": "Satisfies Constraints",
    "gpu_uuid": "GPU UUID",
    "perf_throughput": "Throughput (infer/sec)",
    "perf_latency_avg": "Avg Latency (ms)",
    "perf_latency_p90": "p90 Latency (ms)",
    "perf_latency_p95": "p95 Latency (ms)",
    "perf_latency_p99": "p99 Latency (ms)",
    "perf_latency": "p99 Latency (ms)",
    "perf_client_response_wait": "Response Wait Time (ms)",
    "perf_client_send_recv": "Client Send/Recv (ms)",
    "perf_server_queue": "Server Queue time (ms)",
    "perf_server_compute_input": "Server Compute Input time (ms)",
    "perf_server_compute_infer": "Server Compute Infer time (ms)",
    "perf_server_compute_output": "Server Compute Output time (ms)",
    "gpu_used_memory": "Max GPU Memory Usage (MB)",
    "gpu_free_memory": "Max GPU Memory Available (MB)",
    "gpu_total_memory": "Max GPU Memory Available (MB)",
    "gpu_utilization": "Average GPU Utilization (%)",
    "gpu_power_usage": "Average GPU Power Usage (W)",
    "cpu_used_ram": "Max RAM Usage (MB)",
    "cpu_available_ram": "Max RAM Available (MB)",
    "cpu_utilization": "CPU Utilization (%)",
    "error": "Error",
}
_CONFIG: Final = ("model_config_path", "instance_group")


def inference_fields(settings: AnalyzeSettings, profiles: Sequence[ModelProfile]) -> list[str]:
    """The columns of the table of the measurements."""
    given = settings["inference_output_fields"]
    if given:
        return list(given)
    load = "request_rate" if _has_rates(profiles) else "concurrency"
    fields = ["model_name", "batch_size", load, *_CONFIG, "max_batch_size", "satisfies_constraints"]
    fields += ["perf_throughput", "perf_latency_p99"]
    if settings["collect_cpu_metrics"]:
        fields.append("cpu_used_ram")
    if any(row.error for profile in profiles for row in profile.rows):
        fields.append("error")
    return fields


def _has_rates(profiles: Sequence[ModelProfile]) -> bool:
    return any(load.rate for profile in profiles for row in profile.rows for load in row.trial.loads)


def write_tables(analysis: Analysis, settings: AnalyzeSettings, folder: Path) -> list[Path]:
    """Write the three files.

    Raises:
        OSError: one cannot be written.
    """
    inference = folder / settings["filename_model_inference"]
    fields = inference_fields(settings, analysis.profiles)
    rows = [(profile, row) for profile in analysis.profiles for row in profile.judge.ranked(profile.rows)]
    _write(inference, fields, [[cell(analysis, p, row, field) for field in fields] for p, row in rows])
    files = [inference]
    gpu_fields = list(settings["gpu_output_fields"] or _gpu_fields(analysis.profiles))
    wanted = set(settings["gpus"])
    table = [
        [cell(analysis, p, row, field, uuid) for field in gpu_fields]
        for p, row in rows
        for uuid in row.gpus
        if "all" in wanted or uuid in wanted
    ]
    files.append(folder / settings["filename_model_gpu"])
    _write(files[-1], gpu_fields, table)
    server_fields = list(
        settings["server_output_fields"]
        or ("model_name", "gpu_uuid", "gpu_used_memory", "gpu_utilization", "gpu_power_usage")
    )
    files.append(folder / settings["filename_server_only"])
    _write(files[-1], server_fields, _idle_rows(analysis, server_fields))
    return files


def _gpu_fields(profiles: Sequence[ModelProfile]) -> list[str]:
    load = "request_rate" if _has_rates(profiles) else "concurrency"
    fields = ["model_name", "gpu_uuid", "batch_size", load, *_CONFIG, "satisfies_constraints"]
    return [*fields, "gpu_used_memory", "gpu_utilization", "gpu_power_usage"]


def _idle_rows(analysis: Analysis, fields: Sequence[str]) -> list[list[str]]:
    gpus: dict[str, dict[str, float]] = dict(analysis.idle.get("gpus", {}))
    machine = analysis.idle.get("machine", {})
    found = []
    for uuid, figures in (gpus or ({"no gpu": machine} if machine else {})).items():
        values: dict[str, Any] = {**machine, **figures, "model_name": "triton-server", "gpu_uuid": uuid}
        found.append([_text(values.get(field, "")) for field in fields])
    return found


def _write(file: Path, fields: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([HEADERS.get(field, field.removeprefix("backend_parameter/")) for field in fields])
    writer.writerows(rows)
    write_whole(file, out.getvalue())


def cell(analysis: Analysis, profile: ModelProfile, row: Measurement, field: str, uuid: str = "") -> str:
    """One value; those of several models stand beside each other, as the reference writes them."""
    if field in row.gpus.get(uuid, {}):
        return _text(row.gpus[uuid][field])
    if field in _CELLS:
        return _CELLS[field](analysis, profile, row)
    if field == "gpu_uuid":
        return uuid
    if field.startswith("backend_parameter/"):
        name = field.partition("/")[2]
        values = [c.get("parameters", {}).get(name, {}).get("string_value", "") for c in configs_of(analysis, row)]
        return ",".join(map(str, values))
    if row.error:
        return ""
    name = ALIASES.get(field, field)
    if name in row.machine:
        return _text(row.machine[name])
    return ",".join(_text(model.figures.get(name, "")) for model in row.models)


def configs_of(analysis: Analysis, row: Measurement) -> list[dict[str, Any]]:
    """The configurations of the models under load, and of those that they call where they have no instances."""
    trial = row.trial
    shown = (*trial.variants, *trial.composing)
    base = analysis.checkpoint.configs
    return [changed_config(base.get(variant.model, {}), variant.changes) for variant in shown]


def group_text(config: dict[str, Any]) -> str:
    """The instance groups as the reference writes them: ``2:GPU``."""
    groups = config.get("instance_group", [])
    kinds = [f"{group.get('count', 1)}:{group.get('kind', 'KIND_AUTO').removeprefix('KIND_')}" for group in groups]
    return " + ".join(kinds) or "-"


def _names(analysis: Analysis, profile: ModelProfile, row: Measurement) -> str:
    return ",".join(variant.model for variant in row.trial.variants)


def _loads(name: str) -> Callable[[Analysis, ModelProfile, Measurement], str]:
    return lambda analysis, profile, row: ",".join(f"{getattr(load, name):g}" for load in row.trial.loads)


def _configs(analysis: Analysis, profile: ModelProfile, row: Measurement) -> str:
    return ",".join(analysis.names(row.trial))


_CELLS: Final[dict[str, Callable[[Analysis, ModelProfile, Measurement], str]]] = {
    "model_name": _names,
    "batch_size": _loads("batch_size"),
    "concurrency": _loads("concurrency"),
    "request_rate": _loads("rate"),
    "model_config_path": _configs,
    "instance_group": lambda a, p, row: ",".join(map(group_text, configs_of(a, row))),
    "max_batch_size": lambda a, p, row: ",".join(str(c.get("max_batch_size", 0)) for c in configs_of(a, row)),
    "satisfies_constraints": lambda a, p, row: "Yes" if p.judge.is_within(row) else "No",
    "error": lambda a, p, row: row.error,
}


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

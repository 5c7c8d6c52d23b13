"""Write the Grafana dashboards beside this file: python deploy/monitoring/grafana/make_dashboards.py

The dashboards are committed, so that a deployment needs no Python; this script keeps their panels alike.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "dashboards"
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
PANEL_HEIGHT = 8
STAT_HEIGHT = 4


@dataclass(frozen=True)
class Query:
    """An expression of Prometheus, and the name of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel.

    Attributes:
        unit: a unit of Grafana.
        kind: "timeseries" or "stat".
        width: columns, of 24.
        stacked: whether the series are drawn on top of each other.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 12
    stacked: bool = False


def panel(title: str, description: str, unit: str, *queries: Query, **more: Any) -> Panel:
    return Panel(title, description, unit, queries, **more)


def stat(title: str, description: str, unit: str, expression: str) -> Panel:
    return Panel(title, description, unit, (Query(expression),), kind="stat", width=4)


JOB = 'job=~"$job"'
MODEL = 'job=~"$job", model=~"$model", version=~"$version"'
SERVER = 'job=~"$job", instance=~"$instance"'


def rate(metric: str, labels: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def per_request(metric: str, labels: str, by: str) -> str:
    """Microseconds of a kind for each successful request."""
    return f"{rate(metric, labels, by)} / {rate('nv_inference_request_success', labels, by)}"


REASONS = 'reason!="CANCELED"'

OVERVIEW = (
    stat("Servers", "Servers that answer Prometheus", "none", f"sum(up{{{JOB}}})"),
    stat("Models", "Model versions that are loaded", "none", f"count(nv_inference_exec_count{{{JOB}}})"),
    stat("Requests", "Successful inference requests", "reqps", rate("nv_inference_request_success", JOB, "job")),
    stat(
        "Failures",
        "Failed inference requests, without those that clients cancelled",
        "reqps",
        rate("nv_inference_request_failure", f"{JOB}, {REASONS}", "job"),
    ),
    stat("In flight", "Accepted requests without an answer", "none", f"sum(naiad_requests_in_flight{{{JOB}}})"),
    stat("Memory", "Resident memory of the servers", "bytes", f"sum(naiad_process_resident_memory_bytes{{{JOB}}})"),
    panel(
        "Requests of each model",
        "Successful inference requests",
        "reqps",
        Query(rate("nv_inference_request_success", JOB, "model"), "{{model}}"),
    ),
    panel(
        "Mean latency of each model",
        "From receiving a request to answering it",
        "µs",
        Query(per_request("nv_inference_request_duration_us", JOB, "model"), "{{model}}"),
    ),
    panel(
        "Failures by reason",
        "REJECTED: no room in a queue. CANCELED: by the client. BACKEND: the model failed. OTHER: everything else",
        "reqps",
        Query(rate("nv_inference_request_failure", JOB, "model, reason"), "{{model}} {{reason}}"),
    ),
    panel(
        "Waiting requests",
        "Requests in the queues of the models",
        "none",
        Query(f"sum by (model) (nv_inference_pending_request_count{{{JOB}}})", "{{model}}"),
    ),
    panel(
        "Refused requests",
        "Requests that were refused for want of room, by the bound that they met",
        "reqps",
        Query(rate("naiad_requests_refused", JOB, "bound"), "{{bound}}"),
    ),
    panel(
        "Memory of each model",
        "Measured; the model's worker included",
        "bytes",
        Query(f"sum by (model) (naiad_model_memory_bytes{{{JOB}}})", "{{model}}"),
        stacked=True,
    ),
)

ONE_MODEL = (
    panel(
        "Requests",
        "Successful inference requests",
        "reqps",
        Query(rate("nv_inference_request_success", MODEL, "version"), "version {{version}}"),
    ),
    panel(
        "Where the time of a request goes",
        "Mean time of each part",
        "µs",
        Query(per_request("nv_inference_queue_duration_us", MODEL, "model"), "queue"),
        Query(per_request("nv_inference_compute_input_duration_us", MODEL, "model"), "compute input"),
        Query(per_request("nv_inference_compute_infer_duration_us", MODEL, "model"), "compute infer"),
        Query(per_request("nv_inference_compute_output_duration_us", MODEL, "model"), "compute output"),
        stacked=True,
    ),
    panel(
        "Mean batch size",
        "Inferences of each run of the model. 1 although requests wait: see dynamic_batching",
        "none",
        Query(
            f"{rate('nv_inference_count', MODEL, 'version')} / {rate('nv_inference_exec_count', MODEL, 'version')}",
            "version {{version}}",
        ),
    ),
    panel(
        "Waiting requests",
        "Requests in the queue of the model",
        "none",
        Query(f"sum by (version) (nv_inference_pending_request_count{{{MODEL}}})", "version {{version}}"),
    ),
    panel(
        "Failures by reason",
        "REJECTED: no room in the queue. CANCELED: by the client. BACKEND: the model failed. OTHER: everything else",
        "reqps",
        Query(rate("nv_inference_request_failure", MODEL, "reason"), "{{reason}}"),
    ),
    panel(
        "Busy share of the instances",
        "Time in which the model ran, of one instance: 2 is two busy instances. A batch counts once for each request",
        "percentunit",
        Query(
            f"{rate('nv_inference_compute_infer_duration_us', MODEL, 'version')}"
            f" * {rate('nv_inference_exec_count', MODEL, 'version')}"
            f" / {rate('nv_inference_request_success', MODEL, 'version')} / 1e6",
            "version {{version}}",
        ),
    ),
    panel(
        "Memory",
        "Measured; the model's worker included",
        "bytes",
        Query(f"sum by (version, device) (naiad_model_memory_bytes{{{MODEL}}})", "version {{version}} {{device}}"),
    ),
    panel(
        "Time to load",
        "Of the last load",
        "s",
        Query(f"max by (version) (nv_model_load_duration_secs{{{MODEL}}})", "version {{version}}"),
    ),
)

INSTANCES = (
    panel(
        "Requests of each server",
        "Successful inference requests",
        "reqps",
        Query(rate("nv_inference_request_success", SERVER, "instance"), "{{instance}}"),
    ),
    panel(
        "In flight",
        "Accepted requests without an answer",
        "none",
        Query(f"naiad_requests_in_flight{{{SERVER}}}", "{{instance}}"),
    ),
    panel(
        "Processors",
        "Processor time of the server, without its workers: 1 is one core",
        "percentunit",
        Query(rate("naiad_process_cpu_seconds", SERVER, "instance"), "{{instance}}"),
    ),
    panel(
        "Memory",
        "Resident memory of the server",
        "bytes",
        Query(f"naiad_process_resident_memory_bytes{{{SERVER}}}", "{{instance}}"),
    ),
    panel(
        "Bytes in flight",
        "Bytes that the requests in flight hold",
        "bytes",
        Query(f"naiad_request_bytes_in_flight{{{SERVER}}}", "{{instance}}"),
    ),
    panel(
        "Refused requests",
        "Requests that were refused for want of room, by the bound that they met",
        "reqps",
        Query(rate("naiad_requests_refused", SERVER, "instance, bound"), "{{instance}} {{bound}}"),
    ),
    panel(
        "Cancelled calls",
        "Calls that ended before their answer, by the reason",
        "reqps",
        Query(rate("naiad_calls_cancelled", SERVER, "instance, reason"), "{{instance}} {{reason}}"),
    ),
    panel(
        "Processors of the machine",
        "Busy share of all processors",
        "percentunit",
        Query(f"nv_cpu_utilization{{{SERVER}}}", "{{instance}}"),
    ),
    panel(
        "Memory of the machine",
        "In use",
        "bytes",
        Query(f"nv_cpu_memory_used_bytes{{{SERVER}}}", "{{instance}} used"),
        Query(f"nv_cpu_memory_total_bytes{{{SERVER}}}", "{{instance}} total"),
    ),
    panel(
        "Version",
        "Of each server",
        "none",
        Query(f"count by (version) (naiad_build_info{{{SERVER}}})", "{{version}}"),
    ),
)

GPUS = (
    panel(
        "Utilisation",
        "Share of the time in which the GPU was busy",
        "percentunit",
        Query(f"nv_gpu_utilization{{{SERVER}}}", "{{instance}} {{gpu_uuid}}"),
    ),
    panel(
        "Memory",
        "Memory of the GPU in use",
        "bytes",
        Query(f"nv_gpu_memory_used_bytes{{{SERVER}}}", "{{instance}} {{gpu_uuid}} used"),
        Query(f"nv_gpu_memory_total_bytes{{{SERVER}}}", "{{instance}} {{gpu_uuid}} total"),
    ),
    panel(
        "Power",
        "Power that the GPU draws, and its limit",
        "watt",
        Query(f"nv_gpu_power_usage{{{SERVER}}}", "{{instance}} {{gpu_uuid}}"),
        Query(f"nv_gpu_power_limit{{{SERVER}}}", "{{instance}} {{gpu_uuid}} limit"),
    ),
    panel(
        "Energy of a request",
        "Joules of the GPUs for each successful request",
        "joule",
        Query(
            f"{rate('nv_energy_consumption', SERVER, 'instance')}"
            f" / {rate('nv_inference_request_success', SERVER, 'instance')}",
            "{{instance}}",
        ),
    ),
)

JOBS = ("job", "Job", "label_values(naiad_build_info, job)")
SERVERS = ("instance", "Server", 'label_values(naiad_build_info{job=~"$job"}, instance)')
MODELS = ("model", "Model", 'label_values(nv_inference_exec_count{job=~"$job"}, model)')
VERSIONS = ("version", "Version", 'label_values(nv_inference_exec_count{job=~"$job", model=~"$model"}, version)')

DASHBOARDS = {
    "overview": ("Naiad: overview", OVERVIEW, (JOBS,)),
    "model": ("Naiad: one model", ONE_MODEL, (JOBS, MODELS, VERSIONS)),
    "instances": ("Naiad: servers", INSTANCES, (JOBS, SERVERS)),
    "gpus": ("Naiad: GPUs", GPUS, (JOBS, SERVERS)),
}


def dashboard(name: str) -> dict[str, Any]:
    """The JSON of a dashboard."""
    title, panels, variables = DASHBOARDS[name]
    return {
        "uid": f"naiad-{name}",
        "title": title,
        "tags": ["naiad"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_data_source(), *(_variable(*variable) for variable in variables)]},
        "links": [
            {
                "title": "Naiad",
                "type": "dashboards",
                "tags": ["naiad"],
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "annotations": {"list": []},
        "panels": _placed(panels),
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "prometheus", "selected": True},
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATA_SOURCE,
        "query": {"query": query, "refId": f"variable-{name}"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all", "selected": True},
    }


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """The panels from left to right, then down."""
    placed: list[dict[str, Any]] = []
    x = y = 0
    for number, each in enumerate(panels, 1):
        height = STAT_HEIGHT if each.kind == "stat" else PANEL_HEIGHT
        placed.append(_panel(number, each, {"x": x, "y": y, "w": each.width, "h": height}))
        x += each.width
        if x >= COLUMNS:
            x, y = 0, y + height
    return placed


def _panel(number: int, panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "gridPos": position,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATA_SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "range": True,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": _style(panel)}, "overrides": []},
        "options": _options(panel),
    }


def _style(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {}
    stacking = {"mode": "normal", "group": "A"} if panel.stacked else {"mode": "none", "group": "A"}
    return {"fillOpacity": 30 if panel.stacked else 8, "showPoints": "never", "stacking": stacking}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "graphMode": "area", "colorMode": "none"}
    return {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"], "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(json.dumps(dashboard(name), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

"""The tables of ``-f``: the reference's columns in its order; one for the model, one for each step of an ensemble."""

from __future__ import annotations

from pathlib import Path

from naiad.perf.report.figures import (
    client_averages,
    has_cache,
    is_rate,
    reported_percentiles,
    server_averages,
    shown_levels,
    six_digits,
    whole_us,
)
from naiad.perf.results import LevelResult, Report, ServerParts, Window
from naiad.perf.settings import PerfSettings

Row = dict[str, str]


def write_csv(report: Report, settings: PerfSettings, file: Path) -> list[Path]:
    """Write the table of the model, and beside it one for each step: ``<model>_v<version>.<file>``.

    Returns:
        The files, the model's first.

    Raises:
        OSError: a file cannot be written.
    """
    levels = sorted(shown_levels(report.levels), key=lambda result: result.inference_rate)
    tables = {file: [_model_row(result, report, settings) for result in levels]}
    if not levels:
        file.write_text("")
        return [file]
    for key in dict.fromkeys(key for result in levels for key in _steps(result.merged.server)):
        model, version = key
        rows = [_step_row(result, step) for result in levels if (step := _steps(result.merged.server).get(key))]
        tables[file.with_name(f"{model}_v{version}.{file.name}")] = rows
    for path, rows in tables.items():
        path.write_text(_table(rows))
    return list(tables)


def _table(rows: list[Row]) -> str:
    """The rows under the columns of any of them; what a row lacks is empty."""
    columns = max(rows, key=len).keys()
    lines = [",".join(columns), *(",".join(row.get(column, "") for column in columns) for row in rows)]
    return "\n".join(lines) + "\n"


def _steps(server: ServerParts | None) -> dict[tuple[str, str], ServerParts]:
    """The steps of an ensemble by model and version, those of its ensembles included, each model once."""
    found: dict[tuple[str, str], ServerParts] = {}
    for step in server.composing if server is not None else ():
        found.setdefault((step.model, step.version), step)
        for key, inner in _steps(step).items():
            found.setdefault(key, inner)
    return found


def _level(result: LevelResult) -> Row:
    name = "Request Rate" if is_rate(result.level) else "Concurrency"
    return {name: six_digits(result.level.value)}


def _model_row(result: LevelResult, report: Report, settings: PerfSettings) -> Row:
    window = result.merged
    client = client_averages(window)
    row = {**_level(result), "Inferences/Second": six_digits(result.inference_rate)}
    if report.is_decoupled:
        responses = window.responses / window.duration_s * result.batch_size if window.duration_s > 0 else 0.0
        row["Response Throughput"] = six_digits(responses)
    row["Client Send"] = str(whole_us(client.send))
    if window.server is not None:
        row |= _server_columns(window.server, client.latency - client.send - client.receive)
    row["Client Recv"] = str(whole_us(client.receive))
    for percent in reported_percentiles(settings.measure.percentile):
        row[f"p{percent} latency"] = str(whole_us(window.latency.percentile(percent)))
    return row | (_verbose_columns(window, settings) if settings.output.verbose_csv else {})


def _verbose_columns(window: Window, settings: PerfSettings) -> Row:
    client = client_averages(window)
    row = {}
    if settings.measure.percentile is None:
        row["Avg latency"] = str(whole_us(window.latency.mean))
    total, exchange = client.send + client.wait + client.receive, client.send + client.receive
    row["request/response"] = str(whole_us(exchange))
    row["response wait"] = str(whole_us(total) - whole_us(exchange))
    return row | (_usage_columns(window) if settings.measure.collect_metrics else {})


def _usage_columns(window: Window) -> Row:
    """The reference's four columns of GPUs, then Naiad's own of the server's processes."""
    usage = window.usage
    return {
        "Avg GPU Utilization": _by_gpu(usage.gpu_utilization),
        "Avg GPU Power Usage": _by_gpu(usage.gpu_power_watts),
        "Max GPU Memory Usage": _by_gpu({gpu: str(size) for gpu, size in usage.gpu_memory_used_bytes.items()}),
        "Total GPU Memory": _by_gpu({gpu: str(size) for gpu, size in usage.gpu_memory_total_bytes.items()}),
        "Server CPU cores": "" if usage.cpu_cores is None else six_digits(usage.cpu_cores),
        "Server CPU usec/request": "" if usage.cpu_us_per_request is None else six_digits(usage.cpu_us_per_request),
        "Max server RSS bytes": "" if usage.rss_bytes is None else str(usage.rss_bytes),
    }


def _by_gpu(values: dict[str, float] | dict[str, str]) -> str:
    shown = {gpu: value if isinstance(value, str) else six_digits(value) for gpu, value in values.items()}
    return "".join(f"{gpu}:{value};" for gpu, value in shown.items())


def _server_columns(server: ServerParts, outside_ns: float) -> Row:
    """The server's columns.

    Args:
        outside_ns: the time of a request of which the server's parts leave the network's.
    """
    averages = server_averages(server)
    # With a cache the columns count hits, misses and runs each on its own; a request meets some of them, on average.
    network = max(outside_ns - averages.queue - averages.hit_or_miss, 0.0)
    row = {
        "Network+Server Send/Recv": network,
        "Server Queue": averages.queue,
        "Server Compute Input": averages.compute_input,
        "Server Compute Infer": averages.compute_infer,
        "Server Compute Output": averages.compute_output,
    }
    if has_cache(server):
        row |= {"Server Cache Hit": averages.cache_hit, "Server Cache Miss": averages.cache_miss}
    return {name: str(whole_us(duration)) for name, duration in row.items()}


def _step_row(result: LevelResult, step: ServerParts) -> Row:
    """A step's row: its share of the ensemble's rate, and its parts as the server counted them."""
    server = result.merged.server
    # Requests, not inferences: what a cache answers is no inference.
    rate = result.inference_rate * step.successes / server.successes if server and server.successes else 0.0
    columns = _server_columns(step, server_averages(step).request)
    return {**_level(result), "Inferences/Second": six_digits(rate), "Client Send": "0", **columns, "Client Recv": "0"}

"""One load on one model, measured with ``naiad perf``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from naiad.analyze.errors import AnalyzeError, TrialError
from naiad.analyze.measurement import Measurement, ModelFigures
from naiad.analyze.trial import ModelLoad
from naiad.perf.input.error import PerfInputError
from naiad.perf.load.stop import Stop
from naiad.perf.measure.stability import WINDOWS, best_windows
from naiad.perf.options import PerfOptionError, parse_perf
from naiad.perf.report.figures import latency_parts
from naiad.perf.results import LevelResult, Window
from naiad.perf.run import PerfRun
from naiad.perf.settings import OutputSettings, PerfSettings
from naiad.perf.target.protocol import TargetError

_MB: Final = 1e6
_FEW_ERRORS: Final = 0.01


class AnalysisStoppedError(Exception):
    """The user has ended the analysis."""


def perf_settings(
    model: str, where: Sequence[str], load: ModelLoad, flags: Sequence[str], *, is_recorded: bool = False
) -> PerfSettings:
    """The settings of ``naiad perf`` for one load.

    Args:
        where: the options that say where the model is.
        flags: the user's options.

    Raises:
        AnalyzeError: the flags are wrong.
    """
    words = ["-m", model, *where, "-b", str(load.batch_size)]
    if load.rate:
        words.append(f"--request-rate-range={load.rate:g}:{load.rate:g}:1")
    elif not is_recorded:
        words.append(f"--concurrency-range={load.concurrency}:{load.concurrency}:1")
    try:
        return parse_perf([*words, *flags], {})
    except PerfOptionError as error:
        raise AnalyzeError(f"perf_analyzer_flags of '{model}': {error}") from None


def run_level(settings: PerfSettings, window_ms: int, stop: Stop) -> LevelResult:
    """Measure three windows, and a fourth one where they differ: the three in a row that differ least count.

    Raises:
        TrialError: it cannot be measured, or too many requests fail.
        AnalysisStoppedError: the user has ended it.
    """
    # New processes of a Python model take about a window before they serve as fast as later.
    measure = replace(settings.measure, mode="time_windows", interval_ms=window_ms, max_trials=WINDOWS + 1)
    run = PerfRun(replace(settings, measure=measure, output=OutputSettings()), stop=stop)
    try:
        report = run.run()
    except (TargetError, PerfInputError, PerfOptionError) as error:
        if stop.is_wanted:
            raise AnalysisStoppedError from None
        raise TrialError(str(error)) from None
    if stop.is_wanted:
        raise AnalysisStoppedError
    if run.failure or not report.levels:
        raise TrialError(run.failure or "nothing was measured")
    result = report.levels[0]
    failed = result.merged.errors.total()
    total = failed + result.merged.requests
    if failed > _FEW_ERRORS * total:
        (kind, cause), _ = result.merged.errors.most_common(1)[0]
        raise TrialError(f"{failed} of {total} requests failed, most with {kind}: {cause}")
    return result


def model_figures(model: str, result: LevelResult) -> ModelFigures:
    """The figures of a model."""
    window, latency = result.merged, result.merged.latency
    parts = latency_parts(window)
    figures = {
        "perf_throughput": result.inference_rate,
        "perf_latency_avg": latency.mean / 1e6,
        **{f"perf_latency_p{percent}": latency.percentile(percent) / 1e6 for percent in (50, 90, 95, 99)},
        "perf_client_send_recv": (parts.client_send + parts.client_receive) / 1e3,
        "perf_client_response_wait": max(latency.mean / 1e3 - parts.client_send - parts.client_receive, 0.0) / 1e3,
        "perf_server_queue": parts.queue / 1e3,
        "perf_server_compute_input": parts.compute_input / 1e3,
        "perf_server_compute_infer": parts.compute_infer / 1e3,
        "perf_server_compute_output": parts.compute_output / 1e3,
    }
    server = window.server
    if server is not None and server.executions:
        figures["mean_batch"] = server.inferences / server.executions
    # Those that the figures rest on, as far as they settle by the average latency, which is what is asked for mostly.
    chosen = result.windows if len(result.windows) <= WINDOWS else best_windows(result.windows, None)
    timed = [one for one in chosen if one.requests]
    return ModelFigures(
        model,
        figures,
        [one.request_rate * result.batch_size for one in timed],
        [one.latency.percentile(99) / 1e6 for one in timed],
    )


def note_usage(found: Measurement, window: Window) -> None:
    """Write what the machine was busy with into a measurement."""
    usage = window.usage
    machine = found.machine
    if usage.cpu_cores is not None:
        machine["cpu_utilization"] = usage.cpu_cores * 100
    if usage.rss_bytes is not None:
        machine["cpu_used_ram"] = usage.rss_bytes / _MB
    for gpu, used in usage.gpu_memory_used_bytes.items():
        figures = found.gpus.setdefault(gpu, {})
        total = usage.gpu_memory_total_bytes.get(gpu, used)
        figures |= {
            "gpu_used_memory": used / _MB,
            "gpu_total_memory": total / _MB,
            "gpu_free_memory": (total - used) / _MB,
        }
    for gpu, share in usage.gpu_utilization.items():
        found.gpus.setdefault(gpu, {})["gpu_utilization"] = share * 100
    for gpu, watts in usage.gpu_power_watts.items():
        found.gpus.setdefault(gpu, {})["gpu_power_usage"] = watts
    for name in ("gpu_used_memory", "gpu_free_memory", "gpu_total_memory", "gpu_power_usage"):
        values = [figures[name] for figures in found.gpus.values() if name in figures]
        if values:
            machine[name] = sum(values)
    busy = [figures["gpu_utilization"] for figures in found.gpus.values() if "gpu_utilization" in figures]
    if busy:
        machine["gpu_utilization"] = sum(busy) / len(busy)

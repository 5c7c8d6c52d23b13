"""The text report: the layout of the reference's, with Naiad's own blocks apart from it."""

from __future__ import annotations

from naiad.perf.report.figures import (
    client_averages,
    is_rate,
    level_name,
    reported_percentiles,
    shown_levels,
    six_digits,
    stabilizing_ns,
    whole_us,
)
from naiad.perf.report.findings_text import conclusions_text, findings_text, over_limit_text
from naiad.perf.report.server_text import metrics_text, server_text
from naiad.perf.results import LevelResult, LoadLevel, LoadMode, Report, Window
from naiad.perf.settings import PerfSettings

_DELAYED_PERCENT = 1.0
"""So many of the requests may be sent late without a warning."""

_SERVICE_KINDS = {
    "triton": "TRITON",
    "in_process": "TRITON_C_API",
    "openai": "OPENAI",
    "tfserving": "TENSORFLOW_SERVING",
    "torchserve": "TORCHSERVE",
}


def report_text(report: Report, settings: PerfSettings) -> str:
    """The whole report, as it stands on standard output when a run is through."""
    text = settings_text(settings, is_async=report.is_async, is_decoupled=report.is_decoupled)
    for result in report.levels:
        text += level_heading(result.level)
        if settings.output.verbose:
            for number, window in enumerate(result.windows, 1):
                text += pass_line(number, window, result.batch_size, settings.measure.percentile)
        text += level_text(result, report, settings)
    return text + closing_text(report, settings)


def settings_text(settings: PerfSettings, *, is_async: bool, is_decoupled: bool = False) -> str:
    """The block ``Measurement Settings`` and the empty line behind it.

    Args:
        is_async: whether requests are sent without waiting for responses, the model's kind considered.
        is_decoupled: whether the model may give any number of responses.
    """
    kind = settings.target.service_kind
    lines = [f"Batch size: {settings.input.batch_size}"] if kind == "triton" or "b" in settings.given else []
    lines.append(f"Service Kind: {_SERVICE_KINDS.get(kind, kind.upper())}")
    lines += _count_lines("warmup", settings.measure.warmup_requests)
    lines += [*_window_lines(settings, is_async), *_limit_lines(settings)]
    if settings.load.mode is LoadMode.REQUEST_RATE:
        name = "poisson" if settings.load.distribution == "poisson" else "uniform"
        lines.append(f"Using {name} distribution on request generation")
    if settings.load.binary_search:
        lines.append("Using Binary Search algorithm")
    lines.append(f"Using {'asynchronous' if is_async else 'synchronous'} calls for inference")
    if is_decoupled:
        # The reference names the first response here, but measures to the last one, as Naiad does.
        lines.append("Detected decoupled model, using the last response for measuring latency")
    return "*** Measurement Settings ***\n" + "".join(f"  {line}\n" for line in lines) + "\n"


def level_heading(level: LoadLevel) -> str:
    """The line before a level is measured; the reference has none for custom intervals."""
    if level.mode is LoadMode.CUSTOM_INTERVALS:
        return ""
    if is_rate(level):
        return f"Request Rate: {six_digits(level.value)} inference requests per seconds\n"
    return f"Request concurrency: {six_digits(level.value)}\n"


def pass_line(number: int, window: Window, batch_size: int, percentile: int | None) -> str:
    """What one window found, for ``-v``; windows count from 1."""
    rate = f"  Pass [{number}] throughput: {six_digits(window.request_rate * batch_size)} infer/sec. "
    if percentile is not None:
        return f"{rate}p{percentile} latency: {whole_us(window.latency.percentile(percentile))} usec\n"
    latency = window.latency
    return f"{rate}Avg latency: {whole_us(latency.mean)} usec (std {whole_us(latency.deviation)} usec). \n"


def level_text(result: LevelResult, report: Report, settings: PerfSettings) -> str:
    """The blocks of one level, without its heading."""
    if not result.is_within_limit:
        return over_limit_text(result, settings.load.latency_limit_ms)
    server = result.merged.server
    text = "  Client: \n" + "".join(f"    {line}\n" for line in _client_lines(result, report, settings))
    text += "\n" if server is None else server_text(server)
    text += findings_text(result, settings.output.verbose)
    return text + metrics_text(result.merged.usage)


def closing_text(report: Report, settings: PerfSettings) -> str:
    """The conclusions, then one line for each level, which the reference's readers look for."""
    percentile = settings.measure.percentile
    measure = "Average" if percentile is None else f"p{percentile}"
    text = conclusions_text(report) + f"Inferences/Second vs. Client {measure} Batch Latency\n"
    for result in shown_levels(report.levels):
        rate = six_digits(result.inference_rate)
        latency = whole_us(stabilizing_ns(result.merged, percentile))
        text += f"{level_name(result.level)}, throughput: {rate} infer/sec, latency {latency} usec\n"
    return text


def _count_lines(what: str, count: int) -> list[str]:
    return [f"Sending {count} {what} request{'s' if count > 1 else ''}"] if count else []


def _window_lines(settings: PerfSettings, is_async: bool) -> list[str]:
    measure = settings.measure
    if measure.total_requests:
        return _count_lines("benchmark", measure.total_requests)
    # The missing blanks are the reference's: scripts match these lines.
    stabilized = "average " if measure.percentile is None else f"p{measure.percentile}"
    stabilized += "throughput" if is_async else "latency and throughput"
    window = f"Measurement window: {measure.interval_ms} msec"
    if measure.mode == "count_windows":
        window = f"Minimum number of samples in each window: {measure.request_count}"
    return [f'Using "{measure.mode}" mode for stabilization', f"Stabilizing using {stabilized}", window]


def _limit_lines(settings: PerfSettings) -> list[str]:
    """The limits of a search; the reference says nothing for a range that ends at 1, which is its default."""
    load = settings.load
    if load.mode not in (LoadMode.CONCURRENCY, LoadMode.REQUEST_RATE):
        return []
    if not load.levels.is_explicit or load.levels.end == 1:
        return []
    lines = [f"Latency limit: {load.latency_limit_ms} msec"]
    end = six_digits(load.levels.end)
    if load.levels.end and load.mode is LoadMode.CONCURRENCY:
        lines.append(f"Concurrency limit: {end} concurrent requests")
    elif load.levels.end:
        lines.append(f"Request Rate limit: {end} requests per seconds")
    return lines


def _client_lines(result: LevelResult, report: Report, settings: PerfSettings) -> list[str]:
    window = result.merged
    lines = [f"Request count: {window.requests}", *_delay_lines(result)]
    if window.sequences or report.is_sequence:
        lines.append(
            f"Sequence count: {window.sequences} ({six_digits(_per_second(window.sequences, window))} seq/sec)"
        )
    lines.append(f"Throughput: {six_digits(result.inference_rate)} infer/sec")
    if report.is_decoupled:
        responses = _per_second(window.responses, window) * result.batch_size
        lines.append(f"Response Throughput: {six_digits(responses)} infer/sec")
    if window.output_tokens:
        tokens = six_digits(_per_second(window.output_tokens, window))
        lines.append(f"Output token throughput: {tokens} tokens/sec")
    if settings.output.verbose:
        busy = window.client.cpu_cores / max(window.client.cores, 1) * 100
        lines.append(f"Avg client overhead: {busy:.2f}%")
    return [*lines, *_latency_lines(window, report, settings)] if window.requests else lines


def _delay_lines(result: LevelResult) -> list[str]:
    window = result.merged
    late = 100 * window.delayed / window.requests if window.requests else 0.0
    if late <= _DELAYED_PERCENT:
        return []
    # Requests, as the rate that was asked for is, although the reference's unit says inferences.
    sent = _per_second(window.sent, window)
    return [
        f"Avg send request rate: {sent:.2f} infer/sec",
        "[WARNING] Perf Analyzer was not able to keep up with the desired request rate. "
        f"{late:.2f}% of the requests were delayed. ",
    ]


def _latency_lines(window: Window, report: Report, settings: PerfSettings) -> list[str]:
    latency, percentile = window.latency, settings.measure.percentile
    lines = []
    if percentile is None:
        deviation = whole_us(latency.deviation)
        lines.append(f"Avg latency: {whole_us(latency.mean)} usec (standard deviation {deviation} usec)")
    for percent in reported_percentiles(percentile):
        lines.append(f"p{percent} latency: {whole_us(latency.percentile(percent))} usec")
    if report.protocol == "in_process":
        # Nothing is sent.
        return lines
    return [*lines, _protocol_line(window, report, bool(settings.output.verbose))]


def _protocol_line(window: Window, report: Report, verbose: bool) -> str:
    averages = client_averages(window)
    send, receive = whole_us(averages.send), whole_us(averages.receive)
    total = whole_us(averages.send + averages.wait + averages.receive)
    both = whole_us(averages.send + averages.receive)
    is_grpc = report.protocol == "grpc"
    start = f"Avg {'gRPC' if is_grpc else 'HTTP'} time: {total} usec ("
    if verbose:
        first, last = ("marshal", "unmarshal") if is_grpc else ("send", "receive")
        wait = total - send - receive
        return f"{start}{first} {send} usec + response wait {wait} usec + {last} {receive} usec)"
    name = "(un)marshal request/response" if is_grpc else "send/recv"
    return f"{start}{name} {both} usec + response wait {total - both} usec)"


def _per_second(count: int, window: Window) -> float:
    return count / window.duration_s if window.duration_s > 0 else 0.0

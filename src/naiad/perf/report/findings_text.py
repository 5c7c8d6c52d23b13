"""What Naiad adds to the text report of the reference, in blocks of its own: ``Findings:`` and ``Conclusions:``."""

from __future__ import annotations

from naiad.perf.report.figures import level_name, level_names, shown_levels, six_digits, whole_us
from naiad.perf.report.findings import batching_text, best_level, error_rate, largest_contributor, mean_batch
from naiad.perf.report.instances import instances_text
from naiad.perf.results import LevelResult, Report, Usage, Window

_WAITED = 0.05
"""So much of the time may pass in waiting for a processor before it is worth a line."""
_HIGH_PERCENTILES = (99.9, 99.99)


def findings_text(result: LevelResult, verbose: int = 0) -> str:
    """The block ``Findings:`` of one level, followed by an empty line; empty when there is nothing to say."""
    lines = findings(result, verbose)
    return "".join(("  Findings:\n", *(f"    {line}\n" for line in lines), "\n")) if lines else ""


def findings(result: LevelResult, verbose: int = 0) -> list[str]:
    """What there is to say of one level; lines that belong to the one before them begin with two blanks."""
    window = result.merged
    return [
        *([f"unstable: {result.unstable_reason}"] if result.unstable_reason else []),
        *_usage_lines(window.usage),
        *_client_lines(window),
        *_delay_lines(window),
        *_stream_lines(window),
        *_contributor_lines(window),
        *_batch_lines(window, result.batch_size),
        *(_percentile_lines(window) if verbose else []),
        *(f"Note: {note}" for note in result.notes),
        *_error_lines(window),
    ]


def conclusions_text(report: Report) -> str:
    """The block ``Conclusions:``, followed by an empty line; empty when there is nothing to say."""
    lines = conclusions(report)
    return "".join(("Conclusions:\n", *(f"  {line}\n" for line in lines), "\n")) if lines else ""


def conclusions(report: Report) -> list[str]:
    """What the levels say together."""
    lines = []
    if report.warmup_ns is not None and report.warmup_ns >= 1e9:
        lines.append(f"First response: {report.warmup_ns / 1e9:.1f} s after its request; it is in no window")
    best = best_level(report)
    if best is not None and len(report.levels) > 1:
        lines.append(
            f"Most inferences: {six_digits(best.inference_rate)} a second at {level_name(best.level)},"
            f" p99 {whole_us(best.merged.latency.percentile(99))} usec{_more_unstable(report, best)}"
        )
    unstable = [result.level for result in report.levels if result.unstable_reason]
    if unstable:
        lines.append(f"Unstable: {level_names(unstable)}; longer windows (--measurement-interval) settle more")
    limited = [result.level for result in report.levels if result.merged.client.is_bottleneck]
    if limited:
        names = level_names(limited)
        lines.append(f"The client was the bottleneck: {names}; the server can do more than these figures")
    lines += filter(None, (batching_text(report.levels), instances_text(report.levels, report.instances)))
    if report.usage_missing and report.levels:
        lines.append(f"Server CPU and memory: not known, {report.usage_missing}; use --metrics-url or --server-pid")
    return lines + (["The run was interrupted: levels are missing"] if report.is_interrupted else [])


def _more_unstable(report: Report, best: LevelResult) -> str:
    """The level without stability that had more than the best stable one; empty where none had."""
    most = max(shown_levels(report.levels), key=lambda result: result.inference_rate)
    if most is best:
        return ""
    return f"; {level_name(most.level)} had {six_digits(most.inference_rate)}, but was unstable"


def over_limit_text(result: LevelResult, limit_ms: int) -> str:
    """A level whose latency is over the limit: it is in no list and no table."""
    window = result.merged
    return (
        f"  Measured latency went over the set limit of {limit_ms} msec. \n"
        f"    Found: {six_digits(result.inference_rate)} inferences a second, average {whole_us(window.latency.mean)}"
        f" usec, p95 {whole_us(window.latency.percentile(95))} usec\n\n"
    )


def size_text(size_bytes: float) -> str:
    """A size in the largest unit that leaves at least one whole: ``182.3 MiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"


def _usage_lines(usage: Usage) -> list[str]:
    said = []
    if usage.cpu_cores is not None:
        each = "" if usage.cpu_us_per_request is None else f", {usage.cpu_us_per_request:.1f} usec per request"
        said.append(f"{usage.cpu_cores:.2f} cores{each}")
    if usage.rss_bytes is not None:
        said.append(f"memory {size_text(usage.rss_bytes)}" if said else size_text(usage.rss_bytes))
    name = "Server memory" if usage.cpu_cores is None else "Server CPU"
    return [f"{name}: {', '.join(said)}" + (f" (from {usage.source})" if usage.source else "")] if said else []


def _client_lines(window: Window) -> list[str]:
    client = window.client
    lines = []
    if client.cpu_cores:
        of = f"{client.cores} core{'s' if client.cores > 1 else ''}"
        each = f"{client.cpu_us_per_request:.1f} usec per request"
        lines.append(f"Client CPU: {client.cpu_cores:.2f} of {of}, {each}")
        if client.loop_delay.count:
            lines[-1] += f"; events waited for it p99 {whole_us(client.loop_delay.percentile(99))} usec"
    if client.waited_cores >= _WAITED:
        lines.append(
            f"The client waited for a processor: {client.waited_cores:.2f} cores' worth went to other programs"
        )
    if client.is_bottleneck:
        lines.append("The client is the bottleneck: these figures are its limit, not the server's; --client-workers")
    return lines


def _delay_lines(window: Window) -> list[str]:
    delay = window.send_delay
    if not delay.count:
        return []
    late = f"{window.delayed} of {window.sent} requests late" if window.delayed else "no request late"
    return [
        f"Schedule: {late}; sends behind it p50 {whole_us(delay.percentile(50))}, p99"
        f" {whole_us(delay.percentile(99))}, most {whole_us(delay.greatest)} usec"
    ]


def _stream_lines(window: Window) -> list[str]:
    named = {"First response": window.first_response, "Between responses": window.between_responses}
    return [
        f"{name}: average {whole_us(found.mean)}, p50 {whole_us(found.percentile(50))},"
        f" p95 {whole_us(found.percentile(95))}, p99 {whole_us(found.percentile(99))} usec"
        for name, found in named.items()
        if found.count
    ]


def _contributor_lines(window: Window) -> list[str]:
    found = largest_contributor(window)
    if found is None:
        return []
    part = f"{int(found.us)} of {int(found.total_us)} usec ({found.share:.0%})"
    return [f"Largest part: {found.name}, {part}", f"  Usual remedy: {found.remedy}"]


def _batch_lines(window: Window, batch_size: int) -> list[str]:
    server = window.server
    if server is None or server.composing or mean_batch(server) < 1.05 * batch_size:
        return []
    return [f"Batches: {mean_batch(server):.1f} inferences per execution, {batch_size} per request"]


def _percentile_lines(window: Window) -> list[str]:
    if not window.requests:
        return []
    named = [f"p{percent:g} {whole_us(window.latency.percentile(percent))}" for percent in _HIGH_PERCENTILES]
    # A percentile beyond the number of requests is only the greatest one under another name.
    enough = "" if window.requests >= 10_000 else f" (only {window.requests} requests)"
    return [f"Tail: {', '.join(named)}, most {whole_us(window.latency.greatest)} usec{enough}"]


def _error_lines(window: Window) -> list[str]:
    if not window.errors:
        return []
    failed = sum(window.errors.values())
    lines = [f"Errors: {failed} of {failed + window.requests} requests ({error_rate(window):.2%})"]
    for (kind, message), count in window.errors.most_common():
        lines.append(f"  {count} x {kind}: {' '.join(message.split())}" if message else f"  {count} x {kind}")
    return lines

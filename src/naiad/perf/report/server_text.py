"""The server's part of the text report: counts and averages of a model, of an ensemble and of its steps."""

from __future__ import annotations

from naiad.perf.report.figures import ensemble_averages, has_cache, server_averages, six_digits, whole_us
from naiad.perf.results import ServerParts, Usage


def server_text(server: ServerParts) -> str:
    """The block ``Server:``, and those of the steps of an ensemble; ends with an empty line."""
    is_cached = has_cache(server)
    lines = ["  Server: ", *_model_lines(server, "    ", is_cached), "", *_steps(server, "  ", is_cached)]
    return "\n".join(lines) + "\n"


def metrics_text(usage: Usage) -> str:
    """The figures of the GPUs; empty when there are none."""
    blocks: list[tuple[str, list[str]]] = [
        ("Avg GPU Utilization", [f"{gpu} : {six_digits(part * 100)}%" for gpu, part in usage.gpu_utilization.items()]),
        ("Avg GPU Power Usage", [f"{gpu} : {six_digits(power)} watts" for gpu, power in usage.gpu_power_watts.items()]),
        ("Max GPU Memory Usage", [f"{gpu} : {size} bytes" for gpu, size in usage.gpu_memory_used_bytes.items()]),
        ("Total GPU Memory", [f"{gpu} : {size} bytes" for gpu, size in usage.gpu_memory_total_bytes.items()]),
    ]
    if not any(lines for _, lines in blocks):
        return ""
    text = "  Server Prometheus Metrics: \n"
    for title, lines in blocks:
        text += f"    {title}:\n" + "".join(f"      {line}\n" for line in lines)
    return text


def _steps(server: ServerParts, indent: str, is_cached: bool) -> list[str]:
    if not server.composing:
        return []
    lines = [f"{indent}Composing models: "]
    # The reference keeps the steps by name, not by their place in the ensemble.
    for step in sorted(server.composing, key=lambda step: (step.model, step.version)):
        lines.append(f"{indent}{step.model}, version: {step.version}")
        lines += [*_model_lines(step, f"{indent}    ", is_cached, is_step=True), ""]
        lines += _steps(step, f"{indent}  ", is_cached)
    return lines


def _model_lines(server: ServerParts, indent: str, is_cached: bool, is_step: bool = False) -> list[str]:
    counts = [f"Inference count: {server.inferences}", f"Execution count: {server.executions}"]
    if is_cached:
        counts += [f"Cache hit count: {server.cache_hits}", f"Cache miss count: {server.cache_misses}"]
    counts.append(f"Successful request count: {server.successes}")
    lines = [indent + line for line in (*counts, _request_line(server, is_cached))]
    if is_cached:
        lines += [indent + ("    " if is_step else "  ") + line for line in _cache_lines(server)]
    return lines


def _request_line(server: ServerParts, is_cached: bool) -> str:
    """The average latency of a request and its parts, which add up to it."""
    averages = server_averages(server)
    inside = ensemble_averages(server) if server.composing else None
    parts = {"queue": averages.queue if inside is None else inside.queue}
    if is_cached:
        parts["cache hit/miss"] = averages.hit_or_miss if inside is None else inside.hit_or_miss
    elif inside is not None:
        parts["compute"] = inside.compute
    else:
        parts["compute input"] = averages.compute_input
        parts["compute infer"] = averages.compute_infer
        parts["compute output"] = averages.compute_output
    whole = {name: whole_us(duration) for name, duration in parts.items()}
    request = whole_us(averages.request)
    shown = {"overhead": max(request - sum(whole.values()), 0), **whole}
    return f"Avg request latency: {request} usec ({_sum(shown)})"


def _cache_lines(server: ServerParts) -> list[str]:
    if server.composing:
        inside = ensemble_averages(server)
        hit, miss = whole_us(inside.cache_hit), whole_us(inside.cache_miss)
        return [f"Average Cache Hit Latency: {hit} usec", f"Average Cache Miss Latency: {miss} usec "]
    averages = server_averages(server)
    parts = {
        "cache lookup/insertion": whole_us(averages.cache_miss),
        "compute input": whole_us(averages.compute_input),
        "compute infer": whole_us(averages.compute_infer),
        "compute output": whole_us(averages.compute_output),
    }
    return [
        f"Average Cache Hit Latency: {whole_us(averages.cache_hit)} usec",
        f"Average Cache Miss Latency: {sum(parts.values())} usec ({_sum(parts)})",
    ]


def _sum(parts: dict[str, int]) -> str:
    return " + ".join(f"{name} {duration} usec" for name, duration in parts.items())

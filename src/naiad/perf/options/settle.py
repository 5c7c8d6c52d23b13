"""From the values of options to settings: what follows from several options, and defaults that depend on others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from naiad.perf.load_mode import LoadMode
from naiad.perf.settings import PerfSettings, Range

_PARTS: Final = ("target", "input", "load", "measure", "output")
_DEFAULT_URLS: Final = {
    ("triton", "grpc"): "localhost:8001",
    ("tfserving", "http"): "localhost:8501",
    ("tfserving", "grpc"): "localhost:8500",
    ("torchserve", "http"): "localhost:8080",
}
_METRICS_PORT: Final = 8002


def settle(values: Mapping[str, Any], given: Collection[str], warnings: tuple[str, ...] = ()) -> PerfSettings:
    """The settings that ``values`` mean: by field, such as ``measure.percentile``."""
    found = dict(values)
    _settle_input(found)
    _settle_load(found, given)
    _settle_target(found)
    _settle_measure(found)
    fields: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    for path, value in found.items():
        part, _, name = path.partition(".")
        if part not in fields or not name:
            continue
        field, _, entry = name.partition(".")
        if entry:
            fields[part].setdefault(field, {})[entry] = str(value)
        else:
            fields[part][field] = value
    base = PerfSettings()
    parts = {part: replace(getattr(base, part), **changes) for part, changes in fields.items()}
    return replace(
        base,
        **parts,
        sweep=found.get("sweep", {}),
        compare=tuple(found.get("compare", ())),
        given=frozenset(given),
        warnings=warnings,
    )


def _settle_input(found: dict[str, Any]) -> None:
    sources = found.pop("input.source", [])
    paths = tuple(source for source in sources if isinstance(source, Path))
    found["input.paths"] = paths
    is_zero = "zero" in sources
    # Both together are refused; for that both are kept.
    found["input.source"] = "zero" if is_zero else "" if paths else "random"
    found["input.shapes"] = dict(found.pop("input.shapes", ()))
    found["input.seed"] = found.get("load.seed", 0)


def _settle_load(found: dict[str, Any], given: Collection[str]) -> None:
    if {"t", "c", "d"} & set(given):
        found["load.levels"] = _deprecated_levels(found)
    # A length that means nothing is a warning, as in the reference.
    if found.get("load.sequence_length", 1) <= 0:
        del found["load.sequence_length"]
    start, end = found.get("load.sequence_id_range", (1, 0))
    found["load.sequence_id_range"] = (max(start, 1), end)
    levels = found.get("load.levels")
    if isinstance(levels, Range) and 0 < levels.end < levels.start and not found.get("load.binary_search"):
        found["load.levels"] = replace(levels, end=levels.start)
    if found.get("load.mode") is LoadMode.CUSTOM_INTERVALS:
        found.pop("load.binary_search", None)
    if total := found.get("measure.total_requests"):
        found["measure.mode"], found["measure.request_count"] = "count_windows", total


def _deprecated_levels(found: Mapping[str, Any]) -> Range:
    start = found["start"].start if "start" in found else 1
    if not found.get("search"):
        return Range(start, start, 1)
    end = found["end"].start if "end" in found else 0
    return Range(start, end, 1, is_explicit="end" in found)


def _settle_target(found: dict[str, Any]) -> None:
    kind, protocol = found.get("target.service_kind", "triton"), found.get("target.protocol", "http")
    found.setdefault("target.url", _DEFAULT_URLS.get((kind, protocol), "localhost:8000"))
    found["target.headers"] = tuple(found.get("target.headers", ()))
    found["target.request_parameters"] = dict(found.get("target.request_parameters", ()))
    if str(found["target.url"]).lower().startswith("https://"):
        found["target.use_tls"] = True
    if levels := found.pop("target.trace.trace_level", None):
        found["target.trace.trace_level"] = ",".join(dict.fromkeys(levels))


def _settle_measure(found: dict[str, Any]) -> None:
    kind = found.get("target.service_kind", "triton")
    # Other services have no metrics of this form.
    if "measure.collect_metrics" not in found and kind != "triton":
        found["measure.collect_metrics"] = False
    if not found.get("measure.metrics_url"):
        found["measure.metrics_url"] = metrics_url_of(found["target.url"])


def metrics_url_of(url: str) -> str:
    """The address of the metrics of the server at ``url``: its host, with the port and path of metrics."""
    host = url.partition("://")[2] if "://" in url else url
    host = host.partition("/")[0].rpartition("@")[2]
    if host.startswith("["):
        host = host.partition("]")[0] + "]"
    elif host.count(":") > 1:  # an IPv6 address without a port
        host = f"[{host}]"
    else:
        host = host.partition(":")[0]
    return f"{host or 'localhost'}:{_METRICS_PORT}/metrics"

"""The few figures of a server's metrics page that say how busy it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_LINE: Final = re.compile(
    rb"^(naiad_process_resident_memory_bytes|naiad_process_cpu_seconds(?:_total)?|process_resident_memory_bytes"
    rb"|process_cpu_seconds_total|nv_cpu_utilization|nv_cpu_memory_used_bytes|nv_gpu_utilization|nv_gpu_power_usage"
    rb"|nv_gpu_memory_used_bytes|nv_gpu_memory_total_bytes)(\{[^}\n]*\})? ([^ \n]+)",
    re.MULTILINE,
)
_UUID: Final = re.compile(rb'(?:gpu_)?uuid="([^"]*)"')


@dataclass(slots=True)
class MetricsSample:
    """What one look at the server found; None for what it does not say.

    Attributes:
        at_ns: when, on the monotonic clock.
        cpu_seconds: processor time of the server since its start.
        rss_bytes: memory that the server holds.
        machine_load: busy share of the machine's processors, 0 to 1, when that is all there is.
        gpu_*: by the GPU's UUID; utilisation 0 to 1.
    """

    at_ns: int
    cpu_seconds: float | None = None
    rss_bytes: int | None = None
    machine_load: float | None = None
    gpu_utilization: dict[str, float] = field(default_factory=dict)
    gpu_power_watts: dict[str, float] = field(default_factory=dict)
    gpu_memory_used_bytes: dict[str, int] = field(default_factory=dict)
    gpu_memory_total_bytes: dict[str, int] = field(default_factory=dict)


def read_metrics(page: bytes, at_ns: int) -> MetricsSample:
    """Read a page in Prometheus' text format."""
    sample = MetricsSample(at_ns)
    for name, labels, text in _LINE.findall(page):
        try:
            value = float(text)
        except ValueError:
            continue
        if name.startswith(b"nv_gpu"):
            _note_gpu(sample, name, labels, value)
        elif b"cpu_seconds" in name:
            sample.cpu_seconds = value
        elif name.endswith(b"resident_memory_bytes"):
            sample.rss_bytes = int(value)
        elif name == b"nv_cpu_utilization":
            sample.machine_load = value
    return sample


def _note_gpu(sample: MetricsSample, name: bytes, labels: bytes, value: float) -> None:
    found = _UUID.search(labels)
    uuid = found[1].decode() if found else ""
    if name == b"nv_gpu_utilization":
        sample.gpu_utilization[uuid] = value
    elif name == b"nv_gpu_power_usage":
        sample.gpu_power_watts[uuid] = value
    elif name == b"nv_gpu_memory_used_bytes":
        sample.gpu_memory_used_bytes[uuid] = int(value)
    else:
        sample.gpu_memory_total_bytes[uuid] = int(value)

"""What the metrics say of GPUs: their figures, and on which one a model is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from naiad.gpus.access import uuid_of
from naiad.telemetry.metrics.gpus import GpuFamily, blocks

if TYPE_CHECKING:
    from naiad.config.spec import ModelSpec
    from naiad.gpus.figures import GpuSample

_GAUGE: Final = "gauge"
_FAMILIES: Final[tuple[tuple[str, str, str, Callable[[GpuSample], float | None]], ...]] = (
    ("nv_gpu_utilization", _GAUGE, "Share of the time in which the GPU was busy, 0 to 1", lambda s: s.utilization),
    ("nv_gpu_memory_total_bytes", _GAUGE, "Memory of the GPU", lambda s: s.memory_total_bytes),
    ("nv_gpu_memory_used_bytes", _GAUGE, "Memory of the GPU in use, by any process", lambda s: s.memory_used_bytes),
    ("nv_gpu_power_usage", _GAUGE, "Watts that the GPU draws", lambda s: s.power_w),
    ("nv_gpu_power_limit", _GAUGE, "Watts that the GPU may draw", lambda s: s.power_limit_w),
    ("nv_energy_consumption", "counter", "Joules that the GPU used since the server started", lambda s: s.energy_j),
)


def gpu_families(samples: Sequence[GpuSample]) -> Iterator[str]:
    """Each family as text; none where there is no GPU."""
    for name, kind, help_line, value in _FAMILIES if samples else ():
        found = [(sample.uuid, value(sample)) for sample in samples]
        yield from blocks([GpuFamily(name, kind, help_line, [(u, v) for u, v in found if v is not None])])


def gpu_uuid(spec: ModelSpec) -> str:
    """The identity of the GPU that all instances of a model are on, "" where there is no such GPU."""
    used = {gpu for group in spec.instance_groups for gpu in group.gpus}
    return _uuid(used.pop()) if len(used) == 1 else ""


@cache
def _uuid(number: int) -> str:
    return uuid_of(number)

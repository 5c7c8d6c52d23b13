"""The statistics object of the protocol, from the counters of a loaded version."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from naiad.execution.model.interface import LoadedVersion
from naiad.lifecycle.memory.measure import DEVICE
from naiad.telemetry.metrics.model_statistics import Duration, ResponseStatistics


def statistics_of(model: LoadedVersion) -> dict[str, Any]:
    """An element of ``model_stats``."""
    found = model.statistics
    return {
        "name": model.name,
        "version": str(model.version),
        "last_inference": found.last_inference_ms,
        "inference_count": found.inference_count,
        "execution_count": found.execution_count,
        "inference_stats": {
            "success": _duration(found.success),
            "fail": _duration(found.failure),
            "queue": _duration(found.queue),
            "compute_input": _duration(found.compute_input),
            "compute_infer": _duration(found.compute_infer),
            "compute_output": _duration(found.compute_output),
            "cache_hit": _duration(found.cache_hit),
            "cache_miss": _duration(found.cache_miss),
        },
        "response_stats": {
            str(place): {name: _duration(getattr(found, name)) for name in _RESPONSE_DURATIONS}
            for place, found in enumerate(found.responses)
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": _duration(batch.compute_input),
                "compute_infer": _duration(batch.compute_infer),
                "compute_output": _duration(batch.compute_output),
            }
            for rows, batch in sorted(found.batches.items())
        ],
        "memory_usage": [{"type": DEVICE, "id": 0, "byte_size": found.memory_bytes}] if found.memory_bytes else [],
    }


_RESPONSE_DURATIONS = tuple(field.name for field in fields(ResponseStatistics))


def _duration(duration: Duration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}

"""The families of metrics that ``model_metrics`` of a configuration may set."""

from __future__ import annotations

from typing import Final

FIRST_RESPONSE: Final = "nv_inference_first_response_histogram_ms"
STAGES: Final = ("request", "queue", "compute_input", "compute_infer", "compute_output")
HISTOGRAMS: Final = (FIRST_RESPONSE, *(f"nv_inference_{stage}_duration_histogram_us" for stage in STAGES))
"""The histograms of latencies: each may have buckets of the model's own."""

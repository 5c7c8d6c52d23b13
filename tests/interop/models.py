"""The models of the interop suite. Tests that count what a model did use a model of their own."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np

from support.served_models import LOOK_UP, SUM_AND_DIFFERENCE, identity, write_model

DELAY_MS = 600
"""How long one run of a slow model takes: longer than anything around it, short enough to wait for."""

SLOW_MODELS = tuple(f"slow_{i}" for i in range(40))
"""Enough for every test that counts what a slow model did to have one of its own."""

VALUES: dict[str, np.ndarray] = {
    "BOOL": np.array([[True, False, True]]),
    **{
        name: np.array([[np.iinfo(name.lower()).min, 1, np.iinfo(name.lower()).max]], name.lower())
        for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
    },
    "FP16": np.array([[1.5, -0.0, 65504.0]], np.float16),
    "BF16": np.array([[1.5, -2.25, 3e38]], ml_dtypes.bfloat16),
    "FP32": np.array([[0.1, -1.5, 3.4e38]], np.float32),
    "FP64": np.array([[0.1, -1.5, 1.7e308]], np.float64),
    "BYTES": np.array([[b"a", "ümlaut \u2603 \n".encode(), b""]], np.object_),
}
"""Edge values of every datatype; the model ``id_<datatype>`` gives them back."""


def write_models(repository: Path) -> None:
    """Write all models."""
    for datatype in VALUES:
        config_type = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        write_model(repository, f"id_{datatype}", identity(config_type, "-1", max_batch_size=4))
    write_model(repository, "fixed", identity("TYPE_FP32", "3", max_batch_size=4))
    write_model(repository, "vector", identity("TYPE_FP32", "-1"))
    write_model(repository, "large", identity("TYPE_UINT8", "-1"))
    for name in SLOW_MODELS:
        write_model(repository, name, identity("TYPE_FP32", "-1", delay_ms=DELAY_MS))
    for name in ("sum", "sum_stream", "sum_triton"):
        queue = "dynamic_batching { max_queue_delay_microseconds: 2000 }"
        write_model(repository, name, f"max_batch_size: 8 {queue}", graph=SUM_AND_DIFFERENCE)
    write_model(repository, "look_up", "max_batch_size: 8", graph=LOOK_UP)
    write_model(repository, "versions", "version_policy { all { } }\n" + identity(), versions=(1, 7))

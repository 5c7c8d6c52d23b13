"""Measuring a format as it will be served."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from naiad.convert.process import run_step_process
from naiad.convert.samples import write_samples
from naiad.convert.settings import Limits

MODEL = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.5)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", r.inputs()[0].as_numpy())]) for r in requests]
"""
CONFIG = """
backend: "python"
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


@pytest.mark.slow
def test_windows_grow_until_a_slow_format_answers(tmp_path: Path) -> None:
    version = tmp_path / "repository" / "measured" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL, encoding="utf-8")
    (version.parent / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
    write_samples([{"x": np.ones(4, np.float32)}], tmp_path / "samples")
    arguments = {
        "repository": str(tmp_path / "repository"),
        "samples": str(tmp_path / "samples"),
        "names": ["x"],
        "batching": False,
        "batch_sizes": [1],
        "window_ms": 5,
        "stability_percent": 90.0,
        "max_trials": 8,
        "cutoff": 0.05,
    }
    function = "naiad.convert.steps.measure:measure_served"
    done = run_step_process("measure", function, arguments, tmp_path / "measure", Limits(time_s=100))
    assert done.failure is None
    assert done.value["levels"][0]["p50_ms"] > 500

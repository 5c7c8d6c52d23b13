"""Measuring a format as it will be served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


FUNCTION = "naiad.convert.steps.measure:measure_served"


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    version = tmp_path / "repository" / "measured" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL, encoding="utf-8")
    (version.parent / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
    write_samples([{"x": np.ones((4, 4), np.float32)}], tmp_path / "samples")
    return {
        "repository": str(tmp_path / "repository"),
        "samples": str(tmp_path / "samples"),
        "names": ["x"],
        "batching": True,
        "batch_sizes": [1],
        "window_ms": 5,
        "stability_percent": 90.0,
        "max_trials": 8,
        "cutoff": 0.05,
    }


@pytest.mark.slow
def test_windows_grow_until_a_slow_format_answers(tmp_path: Path, arguments: dict[str, Any]) -> None:
    done = run_step_process("measure", FUNCTION, arguments, tmp_path / "measure", Limits(time_s=100))
    assert done.failure is None
    assert done.value["levels"][0]["p50_ms"] > 500


@pytest.mark.slow
def test_no_larger_batch_is_tried_when_the_smaller_ones_took_long(tmp_path: Path, arguments: dict[str, Any]) -> None:
    arguments |= {"batch_sizes": [1, 2, 4], "window_ms": 1200, "budget_s": 1.0}
    done = run_step_process("measure", FUNCTION, arguments, tmp_path / "measure", Limits(time_s=100))
    assert done.failure is None
    assert [level["batch"] for level in done.value["levels"]] == [1]
    assert "a batch of 2 was not tried" in done.value["note"]


@pytest.mark.slow
@pytest.mark.parametrize(("cutoff", "batches"), [(2.0, [1, 2, 3]), (None, [1, 2, 3, 4])])
def test_batches_that_gain_nothing_are_tried_without_a_cutoff(
    cutoff: float | None, batches: list[int], tmp_path: Path, arguments: dict[str, Any]
) -> None:
    each_row = MODEL.replace("0.5", "0.005 * sum(len(r.inputs()[0].as_numpy()) for r in requests)")
    (tmp_path / "repository" / "measured" / "1" / "model.py").write_text(each_row, encoding="utf-8")
    asked = arguments | {"batch_sizes": [1, 2, 3, 4], "cutoff": cutoff, "max_trials": 3, "window_ms": 100}
    done = run_step_process("measure", FUNCTION, asked, tmp_path / "measure", Limits(time_s=100))
    assert done.failure is None
    assert [level["batch"] for level in done.value["levels"]] == batches

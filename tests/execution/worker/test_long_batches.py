"""A line in the log about a model that hangs, or takes very long."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import naiad
from naiad.testing import wait_until
from support.python_models import write_python_model

WAITS = """
class TritonPythonModel:
    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        while x[0, 0] and not os.path.exists(os.path.join(pb_utils.get_model_dir(), "go")):
            time.sleep(0.01)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]) for _ in requests]
"""


@pytest.mark.slow
def test_a_batch_that_runs_for_long_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("naiad.execution.worker.instance.LONG_S", 0.5)
    caplog.set_level(logging.INFO, "naiad")
    write_python_model(tmp_path / "models", "m", WAITS)
    with naiad.Server(model_repository=str(tmp_path / "models")) as server, ThreadPoolExecutor() as pool:
        model = server.model("m")

        def ask(value: float) -> list[float]:
            (response,) = model.infer(inputs={"X": np.full((1, 1), value, np.float32)})
            return response.outputs["Y"].numpy().ravel().tolist()

        assert ask(0) == [0]
        asked = pool.submit(ask, 1)
        try:
            wait_until(lambda: caplog.text.count("m_0_0 has been running a batch for") == 2, 30, "two lines")
        finally:
            (tmp_path / "models" / "m" / "1" / "go").touch()
        assert asked.result(30) == [1]
        assert "requests: 1; execute-timeout-seconds would limit that" in caplog.text

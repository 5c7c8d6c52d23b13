"""Eight instances of a model that prepares inputs work at once, and do five times the work where cores allow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc

from naiad.testing import RunningServer, serving
from support.python_models import HEAD
from support.served_models import write_model

INSTANCES = 8
CORES = 16
CONFIG = """backend: "python" max_batch_size: 0
input [{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }]
instance_group [{ count: %d kind: KIND_CPU }]
"""
ANSWER = "return [pb_utils.InferenceResponse([pb_utils.Tensor('y', np.ones(1, np.float32))]) for _ in requests]"
# Each waits until as many run as there are instances, so none is answered unless all of them do.
MEETS = f"""
class TritonPythonModel:
    def initialize(self, args):
        self.folder = os.path.join(args["model_repository"], "running")
        os.makedirs(self.folder, exist_ok=True)

    def execute(self, requests):
        open(os.path.join(self.folder, str(os.getpid())), "w").close()
        begun = time.monotonic()
        while len(os.listdir(self.folder)) < {INSTANCES}:
            if time.monotonic() - begun > 20:
                raise RuntimeError("the others do not run")
            time.sleep(0.005)
        {ANSWER}
"""
WORKS = f"""
class TritonPythonModel:
    def execute(self, requests):
        text = "a1b2" * 5000
        for _ in range(10):
            text.translate(str.maketrans("ab", "cd")).upper().split("1")
        {ANSWER}
"""


@contextmanager
def served(folder: Path, source: str, count: int) -> Iterator[RunningServer]:
    folder.mkdir()
    (write_model(folder / "models", "m", CONFIG % count) / "1" / "model.py").write_text(HEAD + source)
    with serving(folder / "log", folder / "models") as server:
        yield server


def ask_at_once(server: RunningServer, count: int) -> None:
    """All of them answered, with eight times as many open as there are instances."""
    given = tritonclient.grpc.InferInput("x", [1], "FP32")
    given.set_data_from_numpy(np.ones(1, np.float32))
    with (
        tritonclient.grpc.InferenceServerClient(server.grpc_url) as client,
        ThreadPoolExecutor(8 * INSTANCES) as callers,
    ):
        asked = [callers.submit(client.infer, "m", [given]) for _ in range(count)]
        assert {float(one.result(60).as_numpy("y")[0]) for one in asked} == {1.0}


@pytest.mark.slow
def test_all_of_them_run_at_the_same_time(tmp_path: Path) -> None:
    with served(tmp_path / "eight", MEETS, INSTANCES) as server:
        ask_at_once(server, INSTANCES)


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < CORES, reason=f"needs {CORES} cores")
def test_eight_do_five_times_the_work_of_one(tmp_path: Path) -> None:
    def rate(count: int) -> float:
        with served(tmp_path / str(count), WORKS, count) as server:
            ask_at_once(server, 100)
            begun = time.monotonic()
            ask_at_once(server, 200 * count)
            return 200 * count / (time.monotonic() - begun)

    one, eight = rate(1), rate(INSTANCES)
    assert eight >= 5 * one, f"one does {one:.0f}/s, eight do {eight:.0f}/s"

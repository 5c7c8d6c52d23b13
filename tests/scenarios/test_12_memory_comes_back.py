"""A model of 200 MB in a process of its own comes and goes: its memory comes back every time."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from naiad.testing import RunningServer, serving, wait_until
from support.python_models import HEAD
from support.served_models import write_model

FIRST_ROUNDS, ROUNDS = 5, 10
MIB = 1 << 20
LARGE = """
class TritonPythonModel:
    def initialize(self, args):
        self.held = np.ones(25_000_000)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.ones(1, np.float32))]) for _ in requests]
"""
CONFIG = """backend: "python"
input [{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }]
instance_group [{ count: 1 kind: KIND_CPU }]
model_warmup { name: "w" batch_size: 1
    inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } }
"""


def resident_mib(server: RunningServer) -> float:
    process = psutil.Process(server.process.pid)
    return sum(p.memory_info().rss for p in (process, *process.children(recursive=True))) / MIB


@pytest.mark.slow
def test_rounds_of_a_large_model(tmp_path: Path) -> None:
    (write_model(tmp_path / "models", "large", CONFIG) / "1" / "model.py").write_text(HEAD + LARGE)
    with serving(tmp_path / "log", tmp_path / "models", "--model-control-mode=explicit") as server:
        process = psutil.Process(server.process.pid)

        def post(verb: str) -> None:
            assert server.post(f"/v2/repository/models/large/{verb}", {}).status == 200

        def go_rounds(count: int) -> float:
            for _ in range(count):
                post("load")
                assert resident_mib(server) > 200
                post("unload")
                wait_until(lambda: not process.children(), 20, "its process has ended")
            return resident_mib(server)

        before = go_rounds(FIRST_ROUNDS)
        after = go_rounds(ROUNDS)
        assert abs(after - before) <= 0.02 * before, f"{before:.1f} MiB became {after:.1f} MiB"

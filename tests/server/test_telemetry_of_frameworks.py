"""Frameworks keep nothing about those who serve models with them, and send nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.testing import server_environment
from support import onnx_models
from support.python_models import TENSORS, client_of, write_python_model

WAYS = ("thread", "process", "shared")
IMPORTS = """
import onnxruntime

class TritonPythonModel:
    def execute(self, requests):
        y = pb_utils.Tensor("Y", np.ones((1, 3), np.float32))
        return [pb_utils.InferenceResponse([y]) for _ in requests]
"""


def write_onnx(repository: Path, way: str) -> None:
    onnx_models.double(repository / way / "1" / "model.onnx")
    chosen = f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}'
    (repository / way / "config.pbtxt").write_text(f'backend: "onnxruntime" {chosen}')


@pytest.mark.slow
def test_onnx_runtime_keeps_no_telemetry(tmp_path: Path) -> None:
    """Its telemetry begins with the import, by writing an identity for the device into the user's cache."""
    for way in WAYS:
        write_onnx(tmp_path / "models", way)
    write_python_model(tmp_path / "models", "python", IMPORTS, tensors=TENSORS)
    home = tmp_path / "home"
    home.mkdir()
    given = server_environment()
    for name in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"):
        given.pop(name, None)
    with client_of(tmp_path / "models", tmp_path / "log", env={**given, "HOME": str(home)}) as client:
        for model in (*WAYS, "python"):
            assert client.infer(model, 1, 1, 1).shape == (1, 3)
        assert {child.environ().get("ORT_DISABLE_TELEMETRY") for child in client.children()} == {"1"}
        assert [path for path in home.rglob("*") if "onnxruntime" in path.name or "Microsoft" in path.name] == []

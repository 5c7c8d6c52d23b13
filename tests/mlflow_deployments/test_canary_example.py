"""``examples/mlflow-canary`` against a real MLflow and a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.testing.server import serving
from support.mlflow_server import PYTHON, Mlflow
from support.source_tree import ROOT

EXAMPLE = ROOT / "examples" / "mlflow-canary"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="NAIAD_MLFLOW_PYTHON names no Python with mlflow, boto3, onnx, onnxruntime"),
]


def test_the_steps_of_the_readme(mlflow: Mlflow, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    arguments = ("--model-repository", tmp_path / "models", "--model-control-mode", "explicit")
    mirror = ("--model-repository-mirror", tmp_path / "mirror")
    environment = {name: value for name, value in mlflow.environment.items() if name != "PYTHONPATH"}
    with serving(tmp_path / "log.txt", *arguments, *mirror, env=environment) as server:
        printed = mlflow.run(str(EXAMPLE / "canary.py"), NAIAD_URL=server.url)
    expected = (EXAMPLE / "README.md").read_text().split("```text\n")[1].split("```")[0]
    assert printed == expected

"""Models with several versions for tests: version n gives back its input times n."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from naiad.testing import RunningServer
from support.python_models import HEAD, TENSORS
from support.served_models import write_model

ALL = "version_policy { all {} }"
SCALES = """
class TritonPythonModel:
    def initialize(self, args):
        self.factor = int(args["model_version"])

    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.factor * x)]))
        return answers
"""


def graph(factor: int, width: int | str = 2) -> str:
    return f"""<ir_version: 8, opset_import: ["": 17]>
scales (float[N, {width}] X) => (float[N, {width}] Y) {{
  factor = Constant <value_float = {float(factor)}> ()
  Y = Mul (X, factor)
}}"""


def write_onnx(repository: Path, name: str, versions: int, more: str = "") -> Path:
    """An ONNX model."""
    for version in range(1, versions + 1):
        write_model(repository, name, "", (version,), graph(version))
    (repository / name / "config.pbtxt").write_text(f'backend: "onnxruntime" {ALL} {more}')
    return repository / name


def write_python(repository: Path, name: str, versions: int, source: str = SCALES, more: str = "") -> Path:
    """A Python model."""
    for version in range(1, versions + 1):
        folder = repository / name / str(version)
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(HEAD + source)
    config = f'backend: "python" {TENSORS} instance_group [ {{ kind: KIND_CPU count: 1 }} ] {ALL} {more}'
    (repository / name / "config.pbtxt").write_text(config)
    return repository / name


def request(shape: tuple[int, ...], **parameters: Any) -> dict[str, Any]:
    """A request full of ones."""
    count = 1
    for dim in shape:
        count *= dim
    given = {"name": "X", "datatype": "FP32", "shape": list(shape), "data": [1.0] * count}
    return {"inputs": [given], "parameters": parameters} if parameters else {"inputs": [given]}


ONNX = request((1, 2))
PYTHON = request((2,))


def served(server: RunningServer, path: str, value: dict[str, Any]) -> int:
    """The version that answered, which its answer says twice."""
    answer = server.post(f"/v2/models/{path}/infer", value)
    assert answer.status == 200, answer.body
    found = answer.json()
    version = int(found["model_version"])
    assert set(found["outputs"][0]["data"]) == {float(version)}, found
    return version


def shares(server: RunningServer, path: str, value: dict[str, Any], count: int) -> dict[int, int]:
    """How many of ``count`` requests each version answered."""
    return dict(Counter(served(server, path, value) for _ in range(count)))

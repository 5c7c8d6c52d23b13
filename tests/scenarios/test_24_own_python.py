"""A model with requirements of its own under another Python version, beside one that runs in the server's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import tritonclient.grpc

from naiad.backends.environments import interpreters
from naiad.backends.environments.interpreters import Interpreter
from naiad.errors import ModelLoadError
from support.python_environments import make_wheel
from support.python_models import client_of, write_python_model

VERSIONS = ("3.13", "3.12", "3.11", "3.10", "3.9", "3.8")
# Says which Python it runs in, and which version a module has that is none of the server's.
SAYS = """
import json
try:
    from tiny import __version__ as tiny
except ImportError:
    tiny = None

class TritonPythonModel:
    def execute(self, requests):
        said = json.dumps({"python": sys.version.split()[0], "tiny": tiny, "prefix": sys.prefix})
        y = pb_utils.Tensor("Y", np.array([said.encode()], object))
        return [pb_utils.InferenceResponse([y]) for _ in requests]
"""
TENSORS = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_STRING dims: [ 1 ] } ]
"""


def another_python() -> Interpreter:
    """A Python of another version than the one that runs this test."""
    own = ".".join(map(str, sys.version_info[:2]))
    for version in VERSIONS:
        if version != own:
            try:
                return interpreters.find(version, needs_numpy=False)
            except ModelLoadError:
                continue
    pytest.skip(f"no other Python than {own} was found on this machine")


def write_models(models: Path, other: Interpreter) -> None:
    version = "{}.{}".format(*other.version)
    parameters = "".join(
        f'parameters: {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
        for key, value in (("environment", "requirements.txt"), ("python", version))
    )
    own = write_python_model(models, "other", SAYS, parameters, tensors=TENSORS)
    make_wheel(own, "tiny", "1.5")
    (own / "requirements.txt").write_text("./tiny-1.5-py3-none-any.whl\nnumpy\n")
    write_python_model(models, "plain", SAYS, "", tensors=TENSORS)


@pytest.mark.slow
def test_requirements_under_another_python(tmp_path: Path) -> None:
    other = another_python()
    write_models(tmp_path / "models", other)
    cache = tmp_path / "cache"
    for _ in range(2):
        log = tmp_path / "log"
        with client_of(tmp_path / "models", log, f"--backend-config=python,environment-cache={cache}") as client:
            x = tritonclient.grpc.InferInput("X", [1], "FP32")
            x.set_data_from_numpy(__import__("numpy").ones(1, "float32"))
            said = {m: json.loads(client.grpc.infer(m, [x]).as_numpy("Y")[0]) for m in ("other", "plain")}
        assert said["other"]["python"] == ".".join(map(str, other.version))
        assert said["other"]["tiny"] == "1.5"
        assert Path(said["other"]["prefix"]).is_relative_to(cache)
        assert said["plain"] == {"python": sys.version.split()[0], "tiny": None, "prefix": sys.prefix}
    # The second start found the environment as the first had made it.
    assert len([folder for folder in cache.iterdir() if folder.is_dir()]) == 1
    assert "making an environment" not in client.server.log

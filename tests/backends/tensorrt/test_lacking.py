"""What a load of a plan says where it cannot run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from naiad.backends import registry
from naiad.errors import BackendUnavailableError, ModelLoadError
from naiad.gpus.driver import gpus
from support.backend_contract import context
from support.driver_libraries import asked, needs_compiler, write_driver

LOAD = """
from dataclasses import replace
from pathlib import Path
from naiad.backend_api.backend import BackendContext
from naiad.backends import registry
from naiad.errors import NaiadError
try:
    registry.create("tensorrt", BackendContext("m", 1, Path("model.plan"), None, {}, 1))
except NaiadError as error:
    print(error)
"""


@pytest.mark.skipif(bool(gpus()), reason="this machine has a GPU")
def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    lacking = "" if find_spec("tensorrt") else ", and the package tensorrt is not installed either"
    with pytest.raises(BackendUnavailableError) as caught:
        registry.create("tensorrt", context(tmp_path / "model.plan"))
    assert str(caught.value) == (
        "model 'm' needs the backend 'tensorrt', which runs on NVIDIA's GPUs only, and this machine has none that "
        f"works (libcuda.so.1){lacking}; serve the ONNX file that the plan was built from, or run it on a machine with "
        "a GPU, after: pip install 'naiad[tensorrt]', or pip install '.[tensorrt]' in a checkout of Naiad"
    )


@needs_compiler
@pytest.mark.skipif(find_spec("tensorrt") is not None, reason="tensorrt is installed")
def test_a_machine_without_the_package(tmp_path: Path) -> None:
    assert asked(LOAD, write_driver(tmp_path)) == (
        "model 'm' needs the backend 'tensorrt', and tensorrt cannot be imported (No module named 'tensorrt'); run: "
        "pip install 'naiad[tensorrt]', or pip install '.[tensorrt]' in a checkout of Naiad"
    )


def test_a_plan_on_the_processor(tmp_path: Path) -> None:
    """With --gpu-fallback=cpu, too: nothing else runs a plan."""
    from google.protobuf import text_format

    from naiad.backends.tensorrt.backend import TensorRtBackend
    from naiad.config.messages import ModelConfig

    config = text_format.Parse('name: "m" instance_group { kind: KIND_CPU }', ModelConfig())
    with pytest.raises(ModelLoadError, match="has kind KIND_CPU, and a plan of TensorRT runs on NVIDIA's GPUs only"):
        TensorRtBackend(context(tmp_path / "model.plan")).complete(config)

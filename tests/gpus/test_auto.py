"""KIND_AUTO where there is a GPU, whose driver is a library that the test compiles, and frameworks for processors."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.testing import server_environment, serving, write_model
from support import onnx_models
from support.config_texts import parameters
from support.driver_libraries import needs_compiler, write_driver

pytestmark = [needs_compiler, pytest.mark.slow]


def test_a_framework_that_uses_no_gpu_stays_on_the_processor(tmp_path: Path) -> None:
    """It is asked in a thread of the server, and in a process of its own."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("the installed onnxruntime is for GPUs")
    models = tmp_path / "models"
    configs = {
        "thread": "",
        "process": parameters(execution="process"),
        "auto": "instance_group [ { kind: KIND_AUTO gpus: [ 1 ] } ]",
        "gpu": "instance_group [ { kind: KIND_GPU } ]",
        "far": "instance_group [ { kind: KIND_GPU gpus: [ 0, 2 ] } ]",
    }
    for name, text in configs.items():
        folder = write_model(models, name)
        onnx_models.double(folder / "1" / "model.onnx")
        (folder / "config.pbtxt").write_text(f'backend: "onnxruntime"\n{text}\n')
    environment = {**server_environment(), "LD_LIBRARY_PATH": str(write_driver(tmp_path / "driver"))}
    with serving(tmp_path / "log", models, "--exit-on-error=false", env=environment) as server:
        for name in ("thread", "process"):
            (group,) = server.get(f"/v2/models/{name}/config").json()["instance_group"]
            assert (group["kind"], group["count"], group["gpus"]) == ("KIND_CPU", 2, [])
            assert f"model '{name}' runs on the processor: the backend 'onnxruntime', as it is installed" in server.log
        reasons = {row["name"]: row.get("reason", "") for row in server.index()}
    assert "has kind KIND_CPU but specifies one or more GPUs: remove 'gpus' (KIND_AUTO is KIND_CPU" in reasons["auto"]
    assert "where not all of them can be used)" in reasons["auto"]
    assert "the installed onnxruntime has no CUDA provider; install onnxruntime-gpu" in reasons["gpu"]
    # GPU 1 is too old for models.
    assert "invalid or unsupported gpu id 2" in reasons["far"] and "of 7.5 are: 0" in reasons["far"]

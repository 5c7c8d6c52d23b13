"""Figures of GPUs through nvidia-ml-py, which reads them from a library that is compiled for the test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from naiad.testing import server_environment, serving, wait_until, write_model
from support.driver_libraries import UUIDS, asked, needs_compiler, write_driver, write_nvml

pytestmark = needs_compiler
GPU = "from naiad.gpus.driver import gpus\nfrom naiad.gpus.figures import NvmlReader\nreader = NvmlReader()\n"
ROOM = "from naiad.errors import NaiadError\nfrom naiad.gpus.access import GpuAccess\ntry:\n"
ROOM += (
    "    GpuAccess.of('6.0', ['0:0.3', '1:0.8']).check_room('m', {%s})\nexcept NaiadError as error:\n    print(error)\n"
)
IDENTITY = 'backend: "identity" input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } '
IDENTITY += 'output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }\n'


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    write_nvml(folder)
    return write_driver(folder)


def test_the_figures_of_each_gpu(libraries: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    code = GPU + "for gpu in gpus(): print(reader.read(gpu))\nprint(reader.read(gpus()[0]).energy_j)"
    first, second, energy = asked(code, libraries).splitlines()
    assert first == (
        f"GpuSample(uuid='{UUIDS[0]}', power_w=123.456, power_limit_w=300.0, energy_j=0.0, utilization=0.42, "
        "memory_total_bytes=1000000, memory_used_bytes=250000)"
    )
    # One that reports its memory alone.
    assert second == (
        f"GpuSample(uuid='{UUIDS[1]}', power_w=None, power_limit_w=None, energy_j=None, utilization=None, "
        "memory_total_bytes=1000000, memory_used_bytes=900000)"
    )
    # Since the first sample, whatever the driver counted before.
    assert energy == "1.5"


def test_no_model_is_loaded_onto_a_gpu_that_is_too_full(libraries: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    assert asked(ROOM % "0", libraries) == ""
    assert asked(ROOM % "0, 1", libraries) == (
        "can not create model 'm': memory limit set for GPU 1 has exceeded, model loading is rejected: 90.0% of its "
        "memory is in use, and --model-load-gpu-limit=1:0.8"
    )


def test_a_limit_without_the_driver_s_library(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has the library")
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    said = asked(ROOM % "0", write_driver(tmp_path / "driver"))
    assert said.startswith(
        "model 'm': --model-load-gpu-limit needs to know how full GPU 0 is, and NVML, the driver's library for that "
        "(libnvidia-ml.so.1), does not work: "
    )


def test_a_limit_without_the_package(libraries: Path) -> None:
    # -S would hide numpy as well, so the one package is hidden.
    hidden = "import sys\nsys.modules['pynvml'] = None\n"
    assert asked(hidden + ROOM % "0", libraries) == (
        "model 'm': --model-load-gpu-limit needs to know how full GPU 0 is, and the package nvidia-ml-py is not "
        "installed; run: pip install 'naiad[gpu]', or pip install '.[gpu]' in a checkout of Naiad"
    )


@pytest.mark.slow
def test_a_server_shows_the_figures(libraries: Path, tmp_path: Path) -> None:
    """Also that a model says which GPU it is on: this one names it, and computes on the processor."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    for name, gpus in (("one", "[ 0 ]"), ("both", "[ 0, 1 ]")):
        group = f"instance_group [ {{ kind: KIND_GPU gpus: {gpus} }} ]"
        (write_model(tmp_path / "models", name) / "config.pbtxt").write_text(IDENTITY + group)
    options = ("--min-supported-compute-capability=6.0", "--metrics-interval-ms=10")
    environment = {**server_environment(), "LD_LIBRARY_PATH": str(libraries)}
    with serving(tmp_path / "log", tmp_path / "models", *options, env=environment) as server:
        energy = re.compile(rf'nv_energy_consumption{{gpu_uuid="{UUIDS[0]}"}} [1-9]')
        wait_until(lambda: energy.search(server.metrics_page()), 20, "the GPU has used energy")
        page = server.metrics_page()
        assert f'nv_gpu_power_usage{{gpu_uuid="{UUIDS[0]}"}} 123.456\n' in page
        assert f'nv_gpu_power_limit{{gpu_uuid="{UUIDS[0]}"}} 300\n' in page
        assert f'nv_gpu_utilization{{gpu_uuid="{UUIDS[0]}"}} 0.42\n' in page
        for uuid, used in zip(UUIDS, (250_000, 900_000), strict=True):
            assert f'nv_gpu_memory_total_bytes{{gpu_uuid="{uuid}"}} 1000000\n' in page
            assert f'nv_gpu_memory_used_bytes{{gpu_uuid="{uuid}"}} {used}\n' in page
        assert f'nv_inference_count{{gpu_uuid="{UUIDS[0]}",model="one",version="1"}} 0\n' in page
        assert 'nv_inference_count{model="both",version="1"} 0\n' in page

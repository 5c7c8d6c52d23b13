"""Triton Model Navigator's own examples with their imports changed, where a folder has them.

``NAIAD_NAVIGATOR_EXAMPLES`` names the ``examples`` of its repository at release 0.14.0. They are not part of this
project. Copies of them run, in which ``model_navigator`` is ``naiad.navigator``. Not among them: those that need a GPU,
weights from a network, JAX or TensorRT, and those of the in-place functions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(os.environ.get("NAIAD_NAVIGATOR_EXAMPLES", ""))
RUN_S = 900
# With the modules that they import, and the files that they leave.
PROGRAMS = {
    "models/python/identity": ((), "identity.nav"),
    "models/onnx/identity": (("onnx", "onnxruntime"), "identity.nav"),
    "models/tensorflow/linear": (("tensorflow",), "linear.nav"),
    "models/torch/linear": (("torch",), "linear.nav"),
    "01_optimize_torch_linear_model": (("torch",), ""),
    "02_optimize_and_verify_model": (("torch",), ""),
    "03_optimize_model_and_save_package": (("torch",), "linear.nav"),
    "05_optimize_and_serve_model_on_pytriton": (("torch",), "linear.nav"),
    "06_optimize_and_serve_model_on_triton": (("torch",), "model_repository/linear/config.pbtxt"),
    "07_optimize_model_and_use_for_offline_inference": (("torch",), ""),
    "09_custom_configurations_for_optimize": (("torch", "onnx"), ""),
    "11_optimize_and_profile_torch_linear_model": (("torch",), "profiling.yaml"),
    "12_optimize_torch_linear_model_with_custom_args": (("torch",), ""),
    "18_optimize_model_with_non_tensor_inputs": (("torch",), ""),
}
IMPORT = re.compile(r"^(import|from) model_navigator\b", re.MULTILINE)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(RUN_S + 60)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_runs_with_the_import_changed(program: str, tmp_path: Path) -> None:
    modules, left = PROGRAMS[program]
    for module in modules:
        pytest.importorskip(module)
    folder = tmp_path / "example"
    shown = run_example(program, folder)
    if left:
        assert (folder / left).exists(), shown


def test_the_example_that_optimizes_a_package_runs_with_one_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    run_example("models/onnx/identity", tmp_path / "first")
    # The name of its folder has characters that are not shown.
    places = list(EXAMPLES.glob("04_load*"))
    assert len(places) == 1
    words = (f"--input-path={tmp_path / 'first' / 'identity.nav'}", f"--output-path={tmp_path / 'again.nav'}")
    shown = run_example(places[0].name, tmp_path / "second", *words)
    assert (tmp_path / "again.nav").exists(), shown


def run_example(program: str, folder: Path, *words: str) -> str:
    """Run a copy of an example in ``folder``; return what it printed."""
    source = EXAMPLES / program
    if not EXAMPLES.name or not source.is_dir():
        pytest.skip("NAIAD_NAVIGATOR_EXAMPLES does not name the examples of Triton Model Navigator")
    shutil.copytree(source, folder)
    for file in folder.glob("*.py"):
        file.write_text(IMPORT.sub(r"\1 naiad.navigator", file.read_text(encoding="utf-8")), encoding="utf-8")
    command = [sys.executable, "optimize.py", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False)
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    assert "Traceback" not in done.stderr
    return shown

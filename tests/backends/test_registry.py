from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from naiad.backends import registry
from naiad.backends.registry import BACKENDS, NOT_BUILT, BackendEntry
from naiad.errors import BackendUnavailableError
from naiad.gpus.driver import gpus
from support.backend_contract import context
from support.mutual_imports import run_beside_packages


@pytest.mark.parametrize("name", registry.known())
def test_every_known_backend_can_be_made(tmp_path: Path, name: str) -> None:
    framework = registry.BACKENDS[name].framework
    # Not imported by the test: that of OpenVINO itself sends usage data.
    if framework and find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    if registry.BACKENDS[name].needs_gpu and not gpus():
        pytest.skip(f"{framework} needs a GPU")
    at = context(tmp_path / "model")
    backend = registry.create(name, at)
    assert backend.context is at
    backend.close()


@pytest.mark.parametrize(("name", "nearest"), [("onnx", "onnxruntime"), ("torch", "pytorch"), ("Identity", "identity")])
def test_an_unknown_name_shows_the_known_ones_and_the_nearest(tmp_path: Path, name: str, nearest: str) -> None:
    with pytest.raises(BackendUnavailableError) as caught:
        registry.create(name, context(tmp_path))
    assert ", ".join(registry.known()) in str(caught.value)
    assert f"did you mean '{nearest}'?" in str(caught.value)


@pytest.mark.parametrize("name", sorted(NOT_BUILT))
def test_a_backend_of_the_reference_says_that_it_is_not_built(tmp_path: Path, name: str) -> None:
    with pytest.raises(BackendUnavailableError, match=f"'{name}', which is not supported by this version"):
        registry.create(name, context(tmp_path))


def test_a_missing_framework_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        BACKENDS, "pytorch", BackendEntry(BACKENDS["pytorch"].target, "torch_that_is_not_there", "torch")
    )
    with pytest.raises(BackendUnavailableError, match=r"pip install 'naiad\[torch\]'"):
        registry.create("pytorch", context(tmp_path))


def test_a_framework_is_imported_only_when_a_model_needs_it() -> None:
    code = (
        "import sys, naiad.backends.registry, naiad.backends.torch.backend, naiad.backends.onnx.backend;"
        "import naiad.backends.openvino.backend, naiad.backends.tensorflow.backend;"
        "print(*{'torch', 'onnxruntime', 'openvino', 'tensorflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


IMPORTS = """
import gc, sys
from naiad.backends.registry import BackendEntry, import_framework

for name in ("some_framework", "another_framework"):
    before = gc.get_freeze_count()
    import_framework(BackendEntry("none:None", name))
    print(sys.modules[name].COLLECTS, gc.isenabled(), gc.get_freeze_count() > before, end=" ")
    # One that this table has: from now on there may be models.
    sys.modules["onnxruntime"] = sys
"""


def test_no_garbage_is_collected_while_a_framework_is_imported(tmp_path: Path) -> None:
    """Nor does a collection ever look at the objects of the first one."""
    for name in ("some_framework", "another_framework"):
        (tmp_path / f"{name}.py").write_text("import gc\nCOLLECTS = gc.isenabled()\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", IMPORTS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True", "False", "True", "False"]


TWO_IMPORTS = """
from concurrent.futures import ThreadPoolExecutor
from naiad.backends.registry import BackendEntry, import_framework

with ThreadPoolExecutor(2) as pool:
    list(pool.map(import_framework, [BackendEntry("none:None", name) for name in ("first", "second.part")]))
import first
print(first.PART)
"""


def test_two_frameworks_that_import_each_other_load_at_the_same_time(tmp_path: Path) -> None:
    """As Keras and TensorFlow do."""
    assert run_beside_packages(tmp_path, TWO_IMPORTS) == "found"

"""The field's example scripts against the models of ``naiad quickstart``, where a folder has them.

``NAIAD_CLIENT_EXAMPLES`` names the examples of the field's client libraries (``src/python/examples`` of its
repository), ``NAIAD_PYTHON_BACKEND_EXAMPLES`` those of its Python backend (``examples``). They are not part of this
project. A script runs as it is; where it has no option for the server's address, a copy of it runs with another port.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import naiad
from naiad.quickstart.catalog import select
from naiad.quickstart.image import FILE as IMAGE
from naiad.quickstart.write import write_repository
from naiad.testing.repository import write_model
from naiad.testing.server import RunningServer
from support.large_repositories import serving_large

CLIENTS = Path(os.environ.get("NAIAD_CLIENT_EXAMPLES", ""))
PYTHON_BACKEND = Path(os.environ.get("NAIAD_PYTHON_BACKEND_EXAMPLES", ""))
HAS_CLIENTS = "NAIAD_CLIENT_EXAMPLES" in os.environ
HAS_PYTHON_BACKEND = "NAIAD_PYTHON_BACKEND_EXAMPLES" in os.environ
RUN_S = 120
# Where scripts/test installs the packages of node.
NODE_MODULES = Path(sys.prefix) / "interop-node" / "node_modules"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (HAS_CLIENTS or HAS_PYTHON_BACKEND),
        reason="NAIAD_CLIENT_EXAMPLES and NAIAD_PYTHON_BACKEND_EXAMPLES name no folder with the field's examples",
    ),
]
clients = pytest.mark.skipif(not HAS_CLIENTS, reason="NAIAD_CLIENT_EXAMPLES names no folder")
python_backend = pytest.mark.skipif(not HAS_PYTHON_BACKEND, reason="NAIAD_PYTHON_BACKEND_EXAMPLES names no folder")

# Words of arguments that stand for something of the server.
HTTP, GRPC, PICTURE = "<http>", "<grpc>", "<image>"
OVER_HTTP, OVER_GRPC = ("-u", HTTP), ("-i", "grpc", "-u", GRPC)
CLASSES = ("-c", "3", "-s", "INCEPTION")
# Each run of a script: its arguments. What is not here runs once, with the address of the protocol in its name.
RUNS: dict[str, list[tuple[str, ...]]] = {
    "image_client.py": [
        (*OVER_HTTP, "-m", "densenet_onnx", *CLASSES, PICTURE),
        (*OVER_GRPC, "-m", "inception_onnx", *CLASSES, PICTURE),
        (*OVER_GRPC, "-m", "inception_graphdef", "-b", "2", *CLASSES, PICTURE),
        (*OVER_HTTP, "-m", "inception_graphdef", "-a", *CLASSES, PICTURE),
        (*OVER_GRPC, "-m", "densenet_onnx", "--streaming", *CLASSES, PICTURE),
    ],
    "ensemble_image_client.py": [(*OVER_HTTP, "-c", "2", PICTURE), (*OVER_GRPC, "-c", "2", PICTURE)],
    "grpc_image_client.py": [
        ("-u", GRPC, "-m", "inception_graphdef", *CLASSES, PICTURE),
        ("-u", GRPC, "-m", "densenet_onnx", "--streaming", *CLASSES, PICTURE),
    ],
    "memory_growth_test.py": [(), ("-i", "grpc")],
    "reuse_infer_objects_client.py": [OVER_HTTP, OVER_GRPC],
    **{
        f"simple_grpc_{name}_infer_client.py": [("-u", GRPC), ("-u", GRPC, "-d")]
        for name in ("aio_sequence_stream", "sequence_stream", "sequence_sync")
    },
}
# Scripts that count the models of their repository, and the models that they expect there.
PUBLISHED = ("simple", "simple_int8", "simple_string", "simple_identity", "simple_sequence", "densenet_onnx")
OWN_REPOSITORY = {
    "simple_http_model_control.py": (*PUBLISHED, "inception_onnx"),
    "simple_grpc_model_control.py": (*PUBLISHED, "inception_onnx", "simple_dyna_sequence"),
}
NEED_CUDA = re.compile(r"^import .*\bcuda_shared_memory\b", re.MULTILINE)
FAILURE = re.compile(r"^(FAIL|ERROR)", re.MULTILINE)
HAS_ADDRESS = re.compile(r'"--url"')
LOCAL = re.compile(r"localhost:(8000|8001|8002)")
# Modules of examples that are none of the test environment's, as far as a script cannot do without.
OPTIONAL = ("attrdict", "torchvision", "PIL", "torch", "jax", "requests")


def scripts() -> list[str]:
    return sorted(path.name for path in CLIENTS.glob("*.py")) if HAS_CLIENTS else []


def runs() -> list[tuple[str, tuple[str, ...]]]:
    def address(script: str) -> tuple[str, ...]:
        return ("-u", GRPC if "grpc" in script else HTTP)

    return [(script, words) for script in scripts() for words in RUNS.get(script, [address(script)])]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("field") / "models"
    write_repository(folder, select().models)
    return folder


@pytest.fixture(scope="module")
def python_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python") / "models"
    write_repository(folder, select(["add_sub", "repeat_int32", "ensemble_python_resnet50"]).models)
    add_python_models(folder)
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[RunningServer]:
    log = models.parent / "server.log"
    with serving_large(log, "--model-repository", models, "--allow-client-shm=true") as running:
        yield running


@pytest.fixture(scope="module")
def python_server(python_models: Path) -> Iterator[RunningServer]:
    with serving_large(python_models.parent / "server.log", "--model-repository", python_models) as running:
        yield running


def add_python_models(repository: Path) -> None:
    """The models of the Python backend's examples that the quickstart does not have, placed as their READMEs say."""
    for name in ("pytorch", "jax", "custom_metrics"):
        add_python_model(repository, name, name, "")
    for kind in ("sync", "async"):
        add_python_model(repository, f"bls_{kind}", "bls", f"{kind}_")
        add_python_model(repository, f"bls_decoupled_{kind}", "bls_decoupled", f"{kind}_")
    add_python_model(repository, "square_int32", "decoupled", "square_")
    for kind in ("nobatch", "batch"):
        add_python_model(repository, f"{kind}_auto_complete", "auto_complete", f"{kind}_", has_config=False)


def add_python_model(repository: Path, name: str, folder: str, prefix: str, has_config: bool = True) -> None:
    source = PYTHON_BACKEND / folder
    config = (source / f"{prefix}config.pbtxt").read_text() if has_config else ""
    if missing_modules(source / f"{prefix}model.py"):
        return
    write_model(repository, name, config, files={"model.py": source / f"{prefix}model.py"})


def missing_modules(*scripts: Path) -> list[str]:
    """What scripts import and is not installed, of the modules that the test environment may lack."""
    texts = "".join(script.read_text() for script in scripts)
    imported = [m for m in OPTIONAL if re.search(rf"^ *(import|from) {m}\b", texts, re.MULTILINE)]
    return [module for module in imported if importlib.util.find_spec(module) is None]


def run_script(script: Path, words: tuple[str, ...], server: RunningServer, folder: Path, models: Path) -> str:
    """What a script prints; it has to end with 0, in the folder ``folder``."""
    ports = {"8000": server.http, "8001": server.grpc, "8002": server.metrics}
    if not HAS_ADDRESS.search(text := script.read_text()):
        script = folder / script.name
        script.write_text(LOCAL.sub(lambda found: f"localhost:{ports[found[1]]}", text))
    known = {HTTP: server.url, GRPC: server.grpc_url, PICTURE: str(models / IMAGE)}
    command = [sys.executable, str(script), *(known.get(word, word) for word in words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert not FAILURE.search(done.stdout), done.stdout
    return done.stdout


@clients
@pytest.mark.parametrize(
    ("script", "words"), runs(), ids=lambda part: part if isinstance(part, str) else " ".join(part)
)
def test_a_client_example_runs(
    script: str, words: tuple[str, ...], request: pytest.FixtureRequest, models: Path, tmp_path: Path
) -> None:
    file = CLIENTS / script
    if NEED_CUDA.search(file.read_text()) and not shutil.which("nvidia-smi"):
        pytest.skip("needs CUDA")
    if missing := missing_modules(file):
        pytest.skip(f"needs {', '.join(missing)}")
    if script in OWN_REPOSITORY:
        write_repository(tmp_path / "own", select(OWN_REPOSITORY[script]).models)
        options = ("--model-repository", tmp_path / "own", "--model-control-mode=explicit")
        with serving_large(tmp_path / "server.log", *options) as own:
            run_script(file, words, own, tmp_path, models)
    else:
        run_script(file, words, request.getfixturevalue("server"), tmp_path, models)


@clients
def test_the_client_example_in_javascript_runs(server: RunningServer, tmp_path: Path) -> None:
    """It wants the files of the protocol beside it."""
    script = CLIENTS.parents[1] / "grpc_generated" / "javascript" / "client.js"
    node = shutil.which("node")
    if node is None or not script.exists() or not (NODE_MODULES / "@grpc" / "grpc-js").is_dir():
        pytest.skip("needs node, @grpc/grpc-js and grpc_generated/javascript beside the Python examples")
    shutil.copy(script, tmp_path / "client.js")
    (tmp_path / "proto").symlink_to(Path(naiad.__file__).parent / "protos")
    command = [node, "client.js", server.host, str(server.grpc)]
    environment = os.environ | {"NODE_PATH": str(NODE_MODULES)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0 and "15 + 15 = 30\n15 - 15 = 0" in done.stdout, done.stdout + done.stderr


# The name of the model, for which there may be no package here, and the words of the command.
PYTHON_CLIENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "add_sub/client.py": ("add_sub", ()),
    "auto_complete/client.py": ("batch_auto_complete", ()),
    "bls/sync_client.py": ("pytorch", ()),
    "bls/async_client.py": ("pytorch", ()),
    "bls_decoupled/sync_client.py": ("bls_decoupled_sync", ()),
    "bls_decoupled/async_client.py": ("bls_decoupled_async", ()),
    "custom_metrics/client.py": ("custom_metrics", ()),
    "decoupled/repeat_client.py": ("repeat_int32", ()),
    "decoupled/square_client.py": ("square_int32", ()),
    "jax/client.py": ("jax", ()),
    "preprocessing/client.py": (
        "ensemble_python_resnet50",
        ("--image", PICTURE, "--url", GRPC, "--label_file", "labels"),
    ),
    "pytorch/client.py": ("pytorch", ()),
}
NEED_DOWNLOADS = {"instance_kind/client.py": "fetches a network and an image"}


@python_backend
@pytest.mark.parametrize("script", PYTHON_CLIENTS)
def test_an_example_of_the_python_backend_runs(
    script: str, python_server: RunningServer, python_models: Path, tmp_path: Path
) -> None:
    model, words = PYTHON_CLIENTS[script]
    if not (python_models / model).exists():
        pytest.skip(f"the model '{model}' needs a package that is not installed")
    if missing := missing_modules(PYTHON_BACKEND / script):
        pytest.skip(f"needs {', '.join(missing)}")
    if "labels" in words:
        shutil.copy(python_models / "resnet50_onnx" / "labels.txt", tmp_path / "labels")
    output = run_script(PYTHON_BACKEND / script, words, python_server, tmp_path, python_models)
    assert "PASS" in output or "Result is class: CLASS" in output


@python_backend
def test_every_example_of_the_python_backend_is_named() -> None:
    found = {str(path.relative_to(PYTHON_BACKEND)) for path in PYTHON_BACKEND.glob("*/*client.py")}
    assert found == {*PYTHON_CLIENTS, *NEED_DOWNLOADS}

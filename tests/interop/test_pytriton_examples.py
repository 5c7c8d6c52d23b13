"""PyTriton's own examples and unit tests with their imports changed, where a folder has them.

``NAIAD_PYTRITON_EXAMPLES`` names the ``examples`` of its repository at release 0.7.0, ``NAIAD_PYTRITON_TESTS`` its
``tests``. They are not part of this project. Copies of them run, in which ``pytriton`` is ``naiad.pytriton``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.source_tree import ROOT

EXAMPLES = Path(os.environ.get("NAIAD_PYTRITON_EXAMPLES", ""))
TESTS = Path(os.environ.get("NAIAD_PYTRITON_TESTS", ""))
RUN_S = 240
# Those that need neither a GPU nor a network, with the modules that they import.
PROGRAMS = {
    "add_sub_python": (),
    "add_sub_python_with_optional": (),
    "identity_python": (),
    "multiple_models_python": (),
    "use_parameters_and_headers": (),
    "linear_random_pytorch": ("torch",),
    "mlp_random_tensorflow2": ("tensorflow",),
}
# Those of decorators, configurations and addresses. Others mock tritonclient or private methods.
UNIT_TESTS = (
    "test_decorators.py",
    "test_decorators_batch.py",
    "test_model_config_parser.py",
    "test_client_auth.py",
    "test_client_utils.py",
)
IMPORT = re.compile(r"\b(from|import) pytriton\b")
# The one private name that the tests of decorators use.
INJECT = "from naiad.pytriton.models.model import _inject_triton_context"
INJECT_HERE = "from naiad.pytriton.decorators.context import inject_triton_context as _inject_triton_context"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def copied(source: Path, folder: Path) -> Path:
    """A copy with the imports changed."""
    shutil.copytree(source, folder)
    for file in folder.rglob("*.py"):
        text = IMPORT.sub(r"\1 naiad.pytriton", file.read_text(encoding="utf-8"))
        file.write_text(text.replace(INJECT, INJECT_HERE), encoding="utf-8")
    return folder


def free_ports() -> list[int]:
    """Three ports that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [s.getsockname()[1] for s in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def running(command: list[object], folder: Path, environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(
            list(map(str, command)), cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield
            process.send_signal(signal.SIGINT)
            assert process.wait(RUN_S) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


@pytest.mark.skipif("NAIAD_PYTRITON_EXAMPLES" not in os.environ, reason="NAIAD_PYTRITON_EXAMPLES names no folder")
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_runs_with_its_imports_changed(name: str, tmp_path: Path) -> None:
    for module in PROGRAMS[name]:
        pytest.importorskip(module)
    folder = copied(EXAMPLES / name, tmp_path / name)
    http, grpc, metrics = free_ports()
    prefix = "PYTRITON_TRITON_CONFIG_"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        **{f"{prefix}{key}_PORT": str(port) for key, port in (("HTTP", http), ("GRPC", grpc), ("METRICS", metrics))},
    }
    client = folder / "client.py"
    client.write_text(client.read_text(encoding="utf-8").replace('"localhost"', f'"localhost:{http}"'))
    with running([sys.executable, "server.py"], folder, environment, tmp_path / "log.txt"):
        done = subprocess.run(
            [sys.executable, client], cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S
        )
        assert done.returncode == 0, done.stderr + (tmp_path / "log.txt").read_text()


@pytest.mark.skipif("NAIAD_PYTRITON_TESTS" not in os.environ, reason="NAIAD_PYTRITON_TESTS names no folder")
@pytest.mark.parametrize("name", UNIT_TESTS)
def test_unit_tests_pass_with_their_imports_changed(name: str, tmp_path: Path) -> None:
    # What these tests import themselves.
    pytest.importorskip("wrapt")
    pytest.importorskip("pytest_mock")
    folder = copied(TESTS, tmp_path / "tests")
    # Fixtures of the modules that exchange tensors with Triton's process.
    (folder / "unit" / "conftest.py").unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/unit/{name}"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout

"""PyTriton's own examples and unit tests with their imports changed, where a folder has them.

``NAIAD_PYTRITON_EXAMPLES`` names the ``examples`` of its repository at release 0.7.0, ``NAIAD_PYTRITON_TESTS`` its
``tests``. They are not part of this project. Copies of them run, in which ``pytriton`` is ``naiad.pytriton``.
``NAIAD_PYTRITON_PYTHON`` names a Python with what its tests import: tritonclient[all], pytest-asyncio, pytest-mock,
pytest-timeout, wrapt.
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.source_tree import ROOT

EXAMPLES = Path(os.environ.get("NAIAD_PYTRITON_EXAMPLES", ""))
TESTS = Path(os.environ.get("NAIAD_PYTRITON_TESTS", ""))
PYTHON = os.environ.get("NAIAD_PYTRITON_PYTHON", sys.executable)
RUN_S = 240


@dataclass(frozen=True, slots=True)
class Example:
    """The programs of an example that serve, in their order, and the modules that they import."""

    servers: tuple[str, ...] = ("server.py",)
    modules: tuple[str, ...] = ("numpy",)


# Those that need neither a GPU nor weights from a network.
EXAMPLES_BY_NAME = {
    "add_sub_python": Example(),
    "add_sub_python_with_optional": Example(),
    "identity_python": Example(),
    "multiple_models_python": Example(),
    "use_parameters_and_headers": Example(),
    "simple_python_remote_mode": Example(
        ("server_starting_triton.py", "server_remote_mul.py", "server_remote_power.py")
    ),
    "linear_random_pytorch": Example(modules=("torch",)),
    "mlp_random_tensorflow2": Example(modules=("tensorflow",)),
}
# Those of decorators, configurations and addresses.
UNIT_TESTS = (
    "test_decorators.py",
    "test_decorators_batch.py",
    "test_model_config_parser.py",
    "test_tensor.py",
    "test_client_auth.py",
    "test_client_utils.py",
)
# Those of clients, which mock tritonclient: a real server stands in for the mocks, with how many tests pass at least.
# The others look at attributes of the clients that are tritonclient's.
CLIENT_TESTS = {"test_sync_client.py": 20, "test_asyncio_client.py": 22, "test_futures_client.py": 18}
IMPORT = re.compile(r"\b(from|import) pytriton\b")
# The private names that the tests import, and what they are here.
PRIVATE = {
    "from naiad.pytriton.models.model import _inject_triton_context": (
        "from naiad.pytriton.decorators.context import inject_triton_context as _inject_triton_context"
    ),
    "from naiad.pytriton.client.utils import _DEFAULT_NETWORK_TIMEOUT_S": (
        "from naiad.client.sync import TIMEOUT_S as _DEFAULT_NETWORK_TIMEOUT_S"
    ),
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def copied(source: Path, folder: Path) -> Path:
    """A copy with the imports changed."""
    shutil.copytree(source, folder)
    for file in folder.rglob("*.py"):
        text = IMPORT.sub(r"\1 naiad.pytriton", file.read_text(encoding="utf-8"))
        for theirs, ours in PRIVATE.items():
            text = text.replace(theirs, ours)
        file.write_text(text, encoding="utf-8")
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


def python_with(*modules: str) -> str:
    """This Python, or that of ``NAIAD_PYTRITON_PYTHON``, if it has the modules."""
    for python in (sys.executable, PYTHON):
        probe = [python, "-c", f"import {', '.join(modules)}"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip(f"needs {', '.join(modules)}, here or in the Python of NAIAD_PYTRITON_PYTHON")


@pytest.mark.skipif("NAIAD_PYTRITON_EXAMPLES" not in os.environ, reason="NAIAD_PYTRITON_EXAMPLES names no folder")
@pytest.mark.parametrize("name", EXAMPLES_BY_NAME)
def test_an_example_runs_with_its_imports_changed(name: str, tmp_path: Path) -> None:
    example = EXAMPLES_BY_NAME[name]
    python = python_with(*example.modules)
    folder = copied(EXAMPLES / name, tmp_path / name)
    http, grpc, metrics = free_ports()
    for file in folder.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace('"localhost"', f'"localhost:{http}"'), encoding="utf-8")
    prefix = "PYTRITON_TRITON_CONFIG_"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "TRITON_ACCESS_TOKEN": "a token",
        **{f"{prefix}{key}_PORT": str(port) for key, port in (("HTTP", http), ("GRPC", grpc), ("METRICS", metrics))},
    }
    with ExitStack() as stack:
        for server in example.servers:
            log = tmp_path / f"{server}.txt"
            stack.enter_context(running([python, server], folder, environment, log))
        done = subprocess.run(
            [python, "client.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S
        )
        logs = "".join(log.read_text() for log in tmp_path.glob("*.txt"))
        assert done.returncode == 0, done.stderr + logs


def unit_tests(folder: Path, name: str, *modules: str, **variables: str) -> str:
    """What pytest prints of a file of the copied tests, all of which have to pass."""
    command = [python_with(*modules), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    command += ["-o", "asyncio_mode=auto", "-o", "timeout=30"]
    done = subprocess.run(
        [*command, f"tests/unit/{name}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}", **variables},
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


needs_tests = pytest.mark.skipif(
    "NAIAD_PYTRITON_TESTS" not in os.environ, reason="NAIAD_PYTRITON_TESTS names no folder"
)


@needs_tests
@pytest.mark.parametrize("name", UNIT_TESTS)
def test_unit_tests_pass_with_their_imports_changed(name: str, tmp_path: Path) -> None:
    folder = copied(TESTS, tmp_path / "tests")
    # Fixtures of the modules that exchange tensors with Triton's process.
    (folder / "unit" / "conftest.py").unlink()
    unit_tests(tmp_path, name, "wrapt", "pytest_mock", "pytest_asyncio", "pytest_timeout")


@needs_tests
@pytest.mark.parametrize("name", CLIENT_TESTS)
def test_unit_tests_of_clients_pass_on_a_real_server(name: str, tmp_path: Path) -> None:
    unit = copied(TESTS, tmp_path / "tests") / "unit"
    here = Path(__file__).parent
    shutil.copy(here / "pytriton_conftest.py", unit / "conftest.py")
    shutil.copy(here / "pytriton_server.py", unit)
    http, grpc, _ = map(str, free_ports())
    for file in unit.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        text = text.replace("localhost:8000", f"localhost:{http}").replace("localhost:8001", f"localhost:{grpc}")
        file.write_text(text, encoding="utf-8")
    for helpers in ("utils.py", "client_common.py"):
        with (unit / helpers).open("a", encoding="utf-8") as output:
            output.write("\nfrom .pytriton_server import *\n")
    modules = ("wrapt", "pytest_mock", "pytest_asyncio", "pytest_timeout", "gevent", "tritonclient.grpc.aio")
    ports = {"HTTP_PORT_OF_TESTS": http, "GRPC_PORT_OF_TESTS": grpc}
    printed = unit_tests(tmp_path, name, *modules, **ports)
    passed = re.search(r"(\d+) passed", printed)
    assert passed is not None, printed
    assert int(passed[1]) >= CLIENT_TESTS[name], printed

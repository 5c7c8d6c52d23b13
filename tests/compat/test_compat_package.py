"""``packages/compat``, built and installed with pip into a new environment: the field's commands are Naiad's."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import naiad
from naiad.cli.main import COMMANDS
from naiad.testing.repository import write_model
from naiad.testing.server import RunningServer, server_environment
from support.source_tree import ROOT

PACKAGE = ROOT / "packages" / "compat"
NAMES = ("tritonserver", "perf_analyzer", "model-analyzer", "naiad-compat")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.machinery.PathFinder.find_spec(module) is None for module in ("hatchling", "pip")),
        reason="building the package needs pip and hatchling",
    ),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the installed commands."""
    venv = tmp_path_factory.mktemp("compat") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    # Naiad and its packages are those of this environment.
    paths = [str(Path(naiad.__file__).parents[1]), *(p for p in sys.path if p.endswith("site-packages"))]
    site = sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)})
    (Path(site) / "naiad.pth").write_text("".join(f"{path}\n" for path in paths))
    options = ("--disable-pip-version-check", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    # A copy, since a build leaves files beside the sources.
    source = venv.parent / "source"
    subprocess.run(["cp", "-r", PACKAGE, source], check=True)
    command = [sys.executable, "-m", "pip", "--python", python, "install", *options, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return venv / "bin"


def run(programs: Path, *command: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**server_environment(), "PATH": path or str(programs)}
    return subprocess.run(
        [str(programs / command[0]), *command[1:]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def original(folder: Path, name: str) -> Path:
    """A program of another origin."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\necho original\n")
    program.chmod(0o755)
    return program


def test_only_this_package_has_the_names(programs: Path) -> None:
    assert all((programs / name).exists() for name in NAMES)
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(own["scripts"]) == {"naiad"}
    assert tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["version"] == naiad.__version__


@pytest.fixture
def server(programs: Path, tmp_path: Path) -> Iterator[RunningServer]:
    tensor = "[{ name: 'X' data_type: TYPE_FP32 dims: [4] }]"
    write_model(
        tmp_path / "models", "same", f"backend: 'identity'\ninput {tensor}\noutput {tensor}\n".replace("'", '"')
    )
    listen = [f"--{name}-address=127.0.0.1" for name in ("http", "grpc")]
    listen += [f"--{name}-port=0" for name in ("http", "grpc", "metrics")]
    command = [str(programs / "tritonserver"), "--model-repository", str(tmp_path / "models"), *listen]
    log = tmp_path / "server.log"
    with log.open("wb") as file:
        environment = {**server_environment(), "PATH": str(programs)}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    running = RunningServer(process, log)
    try:
        running.wait_ready()
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


def test_tritonserver_serves_and_perf_analyzer_measures(server: RunningServer, programs: Path) -> None:
    given = {"name": "X", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}
    (output,) = server.infer("same", {"inputs": [given]}).json()["outputs"]
    assert output["data"] == [1, 2, 3, 4]
    assert "another one is" not in server.log
    done = run(programs, "perf_analyzer", "-m", "same", "-u", server.url, "--request-count=20")
    assert done.returncode == 0 and "Throughput:" in done.stdout, done.stdout + done.stderr


def test_the_arguments_are_those_of_naiad(programs: Path) -> None:
    done = run(programs, "tritonserver", "--http-port=junk")
    assert done.returncode == 1 and 'Bad option: "--http-port"' in done.stderr
    assert run(programs, "perf_analyzer", "--version").stdout == f"naiad perf {naiad.__version__}\n"


def test_model_analyzer_is_refused_without_the_command(programs: Path) -> None:
    if "analyze" in COMMANDS:
        done = run(programs, "model-analyzer", "--help")
        assert done.returncode == 0 and "naiad analyze" in done.stdout
        return
    done = run(programs, "model-analyzer", "profile")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: model-analyzer stands for 'naiad analyze', which this Naiad does not have; install the original\n"
    )


def test_an_original_on_the_path_is_named(programs: Path, tmp_path: Path) -> None:
    other = original(tmp_path / "other", "perf_analyzer")
    behind = os.pathsep.join((str(programs), str(other.parent)))
    done = run(programs, "perf_analyzer", "--version", path=behind)
    assert done.stderr == f"note: this perf_analyzer is Naiad's ('naiad perf'); another one is {other}\n"
    report = run(programs, "naiad-compat", path=behind)
    assert report.returncode == 0
    assert f"perf_analyzer   naiad perf ({programs / 'perf_analyzer'}); hides {other}\n" in report.stdout
    before = os.pathsep.join((str(other.parent), str(programs)))
    report = run(programs, "naiad-compat", path=before)
    assert report.returncode == 1
    assert f"perf_analyzer   the original, {other}: it comes before Naiad's on the path\n" in report.stdout
    assert f"tritonserver    naiad serve ({programs / 'tritonserver'})\n" in report.stdout

"""The demo: its models, its set-up and the whole of it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.networks import demo_models, images, session, with_random_weights

ROOT = Path(__file__).parent.parent
NAMES = [network.name for network in demo_models.NETWORKS]
LARGE = ("densenet121", "inception_v2", "resnet50")
SMALL_FIRST = [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in NAMES]
"""What the small networks say with the fast tests, the large ones say again."""


def run_script(*command: str, timeout: float = 100, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the repository and keep what it says."""
    return subprocess.run(
        [str(ROOT / command[0]), *command[1:]],
        env={**os.environ, "NAIAD_VENV": sys.prefix, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "models"
    demo_models.build(folder)
    return folder


@pytest.fixture(scope="module")
def models(repository: Path) -> dict[str, object]:
    return {model.name: model for model in demo_models.build(repository)}


def test_repository_has_every_network_and_its_batching_copy(repository: Path) -> None:
    folders = sorted(p.name for p in repository.iterdir())
    assert folders == sorted([*NAMES, *(f"{name}_batch" for name in NAMES)])
    assert all((repository / name / "1" / "model.onnx").is_file() for name in folders)
    assert [(repository / name / "config.pbtxt").exists() for name in NAMES] == [False] * len(NAMES)
    assert all((repository / f"{name}_batch" / "config.pbtxt").is_file() for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_network_gives_the_shipped_answer(repository: Path, models: dict, name: str) -> None:
    model = models[name]
    question = demo_models.example_input(model.shape)
    answer = session(repository / name / "1" / "model.onnx").run([model.output], {model.input: question})[0]
    network = model.network
    np.testing.assert_allclose(answer, network.expected(), rtol=network.rtol, atol=network.atol)


@pytest.mark.parametrize("name", SMALL_FIRST)
def test_batching_copy_treats_rows_alone(models: dict, name: str) -> None:
    """With random weights: a batch of three unlike images gives what each image gives alone, in its own row."""
    model = models[name]
    batchable = session(with_random_weights(demo_models.with_free_batch(model.network.load()), seed=7))
    three = images(3, seed=1)
    batch = batchable.run(None, {model.input: three})[0]
    alone = [batchable.run(None, {model.input: three[i : i + 1]})[0] for i in range(3)]
    assert np.isfinite(batch).all()
    assert np.abs(batch[0] - batch[1]).max() > 10 * np.abs(batch[0] - alone[0][0]).max()
    np.testing.assert_allclose(batch, np.concatenate(alone), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", SMALL_FIRST)
def test_random_weights_leave_the_shipped_graph_alone(models: dict, name: str) -> None:
    """The batching copy is the same function as the graph that ships, at batch one."""
    model = models[name]
    shipped = session(with_random_weights(model.network.load(), seed=3))
    batchable = session(with_random_weights(demo_models.with_free_batch(model.network.load()), seed=3))
    image = images(1, seed=2)
    expected = shipped.run(None, {model.input: image})[0]
    np.testing.assert_allclose(batchable.run(None, {model.input: image})[0], expected, rtol=1e-3, atol=1e-6)


def test_a_graph_that_mixes_rows_gets_no_batching_copy() -> None:
    import onnx.parser

    text = (
        '<ir_version: 8, opset_import: ["": 13]> mix (float[1, 4] x) => (float[1] y) { y = ReduceSum <keepdims=0> (x) }'
    )
    assert demo_models.with_free_batch(onnx.parser.parse_model(text)) is None


@pytest.mark.slow
def test_demo_answers_and_ends(tmp_path: Path) -> None:
    done = run_script("scripts/demo", "--once", "--http-port", "0", "--models", str(tmp_path / "models"))
    assert done.returncode == 0, done.stdout + done.stderr
    for name in NAMES:
        assert any(line.split()[:1] == [name] and " ok" in line for line in done.stdout.splitlines()), done.stdout
    assert "The server answers at" not in done.stdout
    assert done.stdout.endswith(
        "The server has stopped. Without --once it goes on, and the demo shows how to ask it.\n"
    )


@pytest.mark.slow
def test_demo_stops_on_ctrl_c_where_the_signal_was_ignored(repository: Path) -> None:
    """As in a background job of a script, such as a run of these tests."""
    demo = [str(ROOT / "scripts/demo"), "--http-port", "0", "--models", str(repository)]
    with subprocess.Popen(
        ["bash", "-c", 'trap "" INT; exec "$@"', "bash", *demo],
        env={**os.environ, "NAIAD_VENV": sys.prefix},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        try:
            said = ""
            while "Serving until Ctrl-C." not in said:
                line = running.stdout.readline()
                assert line, said
                said += line
            running.send_signal(signal.SIGINT)
            rest = running.stdout.read()
        finally:
            # It stops its server; nothing happens to one that has ended.
            running.terminate()
    assert running.returncode == 0, rest
    assert "stopping the server" in rest


@pytest.mark.slow
def test_demo_says_that_a_port_is_taken(repository: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_script("scripts/demo", "--once", "--http-port", str(port), "--models", str(repository))
    assert done.returncode == 2
    assert f"Port {port} is taken" in done.stderr


@pytest.mark.slow
def test_demo_shows_why_the_server_did_not_start(tmp_path: Path) -> None:
    broken = tmp_path / "models" / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"not a graph")
    done = run_script("scripts/demo", "--once", "--http-port", "0", "--models", str(tmp_path / "models"))
    assert done.returncode == 4
    assert "broken" in done.stderr


@pytest.mark.parametrize("script", ["scripts/demo", "scripts/test"])
def test_scripts_explain_themselves(script: str) -> None:
    done = run_script(script, "--help", timeout=10)
    assert done.returncode == 0
    assert script in done.stdout


@pytest.mark.parametrize("script", ["scripts/demo", "scripts/test", "scripts/check", ".ci/run"])
def test_scripts_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


def test_old_python_is_named(tmp_path: Path) -> None:
    """A stand-in for an old interpreter: a program that says 3.9.1 and fails the version check."""
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.1" && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = run_script("scripts/demo", NAIAD_VENV=str(tmp_path / "venv"), PYTHON=str(old))
    assert done.returncode == 3
    assert "Python 3.11 or newer" in done.stderr
    assert "Python 3.9.1" in done.stderr


@pytest.mark.slow
def test_unreachable_index_is_explained(tmp_path: Path) -> None:
    """An environment that lacks everything, and an index nobody listens at."""
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=90)
    done = run_script("scripts/demo", NAIAD_VENV=str(venv), PIP_EXTRA_INDEX_URL="", PIP_FIND_LINKS="", **nowhere)
    assert done.returncode == 3
    assert "pip could not install" in done.stderr
    assert "PIP_INDEX_URL" in done.stderr


def test_up_to_date_environment_lacks_nothing() -> None:
    requirements = ROOT / "scripts" / "support" / "requirements.py"
    done = subprocess.run([sys.executable, requirements, "demo"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_unknown_group_is_refused() -> None:
    requirements = ROOT / "scripts" / "support" / "requirements.py"
    done = subprocess.run([sys.executable, requirements, "nothing"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 3
    assert "demo" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(580)
def test_demo_works_from_a_fresh_clone(tmp_path: Path) -> None:
    """What git would check out, no environment, nothing but the Python that runs this test."""
    clone = tmp_path / "clone"
    for name in ("src", "scripts"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone / name)
    environment = {k: v for k, v in os.environ.items() if k not in ("NAIAD_VENV", "VIRTUAL_ENV", "PYTHONPATH")}
    base = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    done = subprocess.run(
        [clone / "scripts" / "demo", "--once", "--http-port", "0"],
        env={**environment, "PYTHON": base},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=560,
    )
    if done.returncode == 3 and "pip could not install" in done.stderr:
        pytest.skip(f"no package index here: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (clone / ".venv" / "bin" / "naiad").is_file()

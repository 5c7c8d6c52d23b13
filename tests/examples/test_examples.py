"""The programs of ``examples/``, each in a process of its own, against one server that has all of their models."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.quickstart.catalog import select
from naiad.quickstart.write import write_repository
from naiad.testing.server import RunningServer, serving
from naiad.testing.waiting import wait_until
from support.source_tree import ROOT

EXAMPLES = ROOT / "examples"
QUICKSTART = ("ensemble_python_resnet50", "simple", "repeat_int32", "simple_sequence")
FORMATS = ("torch", "safetensors", "openvino")
WEB_PYTHON = os.environ.get("NAIAD_WEB_PYTHON", sys.executable)
BOUNDARY = "naiad-boundary"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
pytest.importorskip("onnxruntime")
pytest.importorskip("tritonclient")


def has(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def run(*arguments: object) -> tuple[int, str]:
    """The exit code of a program of ``examples/`` and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def shown(folder: str) -> str:
    """The output that the README of an example shows."""
    return (EXAMPLES / folder / "README.md").read_text().split("```text\n")[1].split("```")[0]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "models"
    write_repository(folder, select(QUICKSTART).models)
    for models in sorted(EXAMPLES.glob("*/models")):
        shutil.copytree(models, folder, dirs_exist_ok=True)
    if has(*FORMATS):
        code, text = run(EXAMPLES / "three-formats" / "build.py", folder)
        assert code == 0, text
    return folder


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with serving(log, "--model-repository", repository) as found:
        yield found


def test_ensemble_image(server: RunningServer, repository: Path) -> None:
    code, text = run(EXAMPLES / "ensemble-image" / "client.py", repository / "image.png", server.url)
    assert code == 0, text
    lines = text.splitlines()
    assert len(lines) == 3 and all("%  class " in line for line in lines)


def test_bls(server: RunningServer) -> None:
    program = EXAMPLES / "bls" / "client.py"
    assert run(program, "add", server.url) == (0, " ".join(map(str, range(1, 17))) + "\n")
    assert run(program, "divide", server.url) == (
        1,
        "the server says: OPERATION is 'divide', expected one of add, sub\n",
    )


def test_streaming(server: RunningServer) -> None:
    assert run(EXAMPLES / "streaming" / "client.py", server.grpc_url) == (0, shown("streaming"))


def test_sequence(server: RunningServer) -> None:
    assert run(EXAMPLES / "sequence" / "client.py", server.url) == (0, shown("sequence"))


@pytest.mark.skipif(not has(*FORMATS), reason="needs torch, safetensors and openvino")
def test_three_formats(server: RunningServer) -> None:
    assert run(EXAMPLES / "three-formats" / "compare.py", server.url) == (0, shown("three-formats"))


def test_an_image_from_the_shell(server: RunningServer, repository: Path) -> None:
    image = repository / "image.png"
    code, text = run("-m", "naiad", "infer", "image_classes", "-i", image, "--url", server.url)
    assert code == 0 and "CLASS [1, 3]" in text
    words = ("infer", "resnet50_onnx", "-i", image, "-s", "unit", "--url", server.url)
    code, text = run("-m", "naiad", *words)
    assert code == 0 and "output [1, 1000]" in text, text


@pytest.fixture(scope="module")
def page(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the web client."""
    probe = [WEB_PYTHON, "-c", "import fastapi, uvicorn, python_multipart, tritonclient.http.aio"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("needs fastapi, uvicorn and python-multipart, here or in the Python of NAIAD_WEB_PYTHON")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "NAIAD_URL": server.url}
    command = [WEB_PYTHON, "-m", "uvicorn", "--app-dir", str(EXAMPLES / "web-client"), "--port", str(port), "app:app"]
    log = tmp_path_factory.mktemp("web") / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    try:
        wait_until(lambda: "Uvicorn running" in log.read_text() or process.poll() is not None, 60, "the page is served")
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def post(url: str, kind: str, body: bytes) -> tuple[int, str]:
    request = urllib.request.Request(url, body, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status), response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_web_client(page: str, repository: Path) -> None:
    form = "application/x-www-form-urlencoded"
    status, text = post(f"{page}/text", form, b"text=the+cat+is+in+the+house")
    assert status == 200 and text.index("English") < text.index("German")
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="x.png"\r\n\r\n'.encode()
    tail = f"\r\n--{BOUNDARY}--\r\n".encode()
    parts = f"multipart/form-data; boundary={BOUNDARY}"
    status, text = post(f"{page}/image", parts, head + (repository / "image.png").read_bytes() + tail)
    assert status == 200 and text.count('<div class="bar"') == 3
    status, text = post(f"{page}/image", parts, head + b"<b>no image" + tail)
    assert status == 502 and "is no image that Pillow can read" in text

"""A real TorchServe, where it is installed: ``NAIAD_TORCHSERVE`` names its program, or it is on the path."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from naiad.testing import wait_until
from support.document_blocks import free_ports

START_S = 60
STOP_S = 30
HANDLER = '''
import json

def handle(data, context):
    """Tell what came: where it stood, its type, its bytes."""
    def shown(value):
        return value if isinstance(value, (dict, list, str)) else list(bytes(value))
    return [json.dumps({key: shown(value) for key, value in row.items()}) for row in data or []]
'''


def found_torchserve() -> str:
    """Its path; the test is skipped where it, or Java, is not installed."""
    found = os.environ.get("NAIAD_TORCHSERVE") or shutil.which("torchserve")
    if not found or not shutil.which("java"):
        pytest.skip("TorchServe was not found: name it in NAIAD_TORCHSERVE or put it on PATH, with java on PATH")
    return os.path.abspath(found)


@contextmanager
def torchserve(folder: Path) -> Iterator[str]:
    """TorchServe with the model ``echo``, version 1.0: the ``host:port`` of its predictions."""
    program = found_torchserve()
    (folder / "store").mkdir()
    model = {"modelName": "echo", "handler": "echo.py", "modelVersion": "1.0"}
    manifest = {"runtime": "python", "model": model, "archiverVersion": "0.12.0"}
    with zipfile.ZipFile(folder / "store" / "echo.mar", "w") as archive:
        archive.writestr("echo.py", HANDLER)
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
    ports = free_ports(5)
    names = ("inference_address", "management_address", "metrics_address")
    lines = [f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, ports, strict=False)]
    lines += [f"grpc_inference_port={ports[3]}", f"grpc_management_port={ports[4]}", "default_workers_per_model=1"]
    (folder / "config.properties").write_text("\n".join(lines) + "\n")
    words = ("--start", "--foreground", "--ncs", "--disable-token-auth")
    words += ("--model-store", "store", "--models", "echo.mar")
    path = f"{os.path.dirname(program)}{os.pathsep}{os.environ['PATH']}"
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [program, *words, "--ts-config", "config.properties"],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": path},
            start_new_session=True,
        )
    try:
        address = f"127.0.0.1:{ports[0]}"
        wait_until(lambda: _answers(address), START_S, f"TorchServe serves the model, as {folder / 'log'} tells")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)


def _answers(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/predictions/echo", data=b"x", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False

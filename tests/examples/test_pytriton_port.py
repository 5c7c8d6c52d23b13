"""``examples/pytriton-port``: its server in this process, and its client in another."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from types import ModuleType

from naiad.pytriton.triton import Triton, TritonConfig
from support.source_tree import ROOT

FOLDER = ROOT / "examples" / "pytriton-port"
LOCAL = TritonConfig(http_address="127.0.0.1", grpc_address="127.0.0.1", http_port=0, grpc_port=0, allow_metrics=False)


def load(name: str) -> ModuleType:
    """A program of the example as a module."""
    spec = importlib.util.spec_from_file_location(f"pytriton_port_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_client_prints_what_the_readme_shows() -> None:
    server = load("server")
    with Triton(config=LOCAL) as triton:
        server.bind(triton)
        done = subprocess.run(
            [sys.executable, FOLDER / "client.py", f"http://{triton.http_url}", f"grpc://{triton.grpc_url}"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    shown = (FOLDER / "README.md").read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    assert done.stdout == shown

"""The child under other Pythons than the server's: every one that is found and has numpy."""

from __future__ import annotations

import ast
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from naiad.worker.ipc import frames as p
from support.worker_peer import MAIN, Request, worker_of, write_model

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
MODEL = """
import asyncio
class TritonPythonModel:
    def initialize(self, args):
        pb_utils.Logger.log_info("initialized")
    async def execute(self, requests):
        await asyncio.sleep(0)
        out = []
        for r in requests:
            if r.request_id() == "fail":
                raise RuntimeError("boom")
            outputs = [pb_utils.Tensor("OUT_" + t.name(), t.as_numpy()) for t in r.inputs()]
            out.append(pb_utils.InferenceResponse(outputs, parameters={"p": sys.version_info[1]}))
        return out
    def finalize(self):
        print("finalized")
"""


@functools.lru_cache
def interpreter(version: str) -> str | None:
    """An interpreter of a version that has numpy: named in NAIAD_TEST_PYTHONS (separated by colons), or on the path."""
    named = os.environ.get("NAIAD_TEST_PYTHONS", "").split(":")
    for found in (*named, shutil.which(f"python{version}"), sys.executable):
        if found and is_usable(found, version):
            return found
    return None


def is_usable(python: str, version: str) -> bool:
    test = f"import sys, numpy; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    return subprocess.run([python, "-c", test], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_model_runs(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} with numpy was found; NAIAD_TEST_PYTHONS may name one")
    model = write_model(tmp_path, MODEL)
    with worker_of(model, python=python) as child:
        inputs = {
            "A": np.arange(6, dtype=np.float32).reshape(2, 3),
            "B": np.array([b"x", b"yz"], object),
            "C": np.arange(50_000, dtype=np.int64),
        }
        for _ in range(2):
            (response,) = child.run([Request(inputs, id="ok")])
            assert response.parameters == {"p": int(version.split(".")[1])}
            for name, array in inputs.items():
                np.testing.assert_array_equal(response.outputs["OUT_" + name], array)
        message = child.run_failing([Request(inputs, id="fail")])
        assert message.endswith(f"RuntimeError: boom\n\nAt:\n  {model}(15): execute\n")
        assert [f.json["message"] for f in child.aside if f.kind == p.LOG] == ["initialized"]
        assert child.finish() == 0
        assert child.said() == "finalized\n"


def test_a_file_of_the_same_size_and_second_is_compiled_anew(tmp_path: Path) -> None:
    source = MODEL.replace("boom", "{}")
    for word in ("once", "more"):
        model = write_model(tmp_path, source.replace("{}", word))
        os.utime(model, (1_000_000_000, 1_000_000_000))
        with worker_of(model, env={"PYTHONDONTWRITEBYTECODE": ""}) as child:
            assert f"RuntimeError: {word}" in child.run_failing([Request({"A": np.ones(1)}, id="fail")])


@pytest.mark.parametrize("path", sorted(MAIN.parent.glob("*.py")), ids=lambda path: path.name)
def test_the_source_is_understood_by_the_oldest(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))

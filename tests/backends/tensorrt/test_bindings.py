"""That the installed packages have every function that the backend calls. They can be asked without a GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from naiad.backend_api.backend import BackendContext
from support.source_tree import SRC

FOLDER = SRC / "naiad" / "backends" / "tensorrt"
OBJECTS = {
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "runtime": "Runtime",
}
"""What a local name stands for in the code of the backend."""
OURS = {field.name for field in fields(BackendContext)}


def attributes(name: str) -> Iterator[str]:
    """The attributes of a name that the backend uses."""
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
                yield node.attr


def calls() -> Iterator[str]:
    """The functions of the CUDA runtime that ``call`` is given."""
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "call"):
                continue
            if isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


def test_tensorrt_has_what_is_used() -> None:
    tensorrt: Any = pytest.importorskip("tensorrt", reason="tensorrt is not installed")
    assert [name for name in attributes("tensorrt") if not hasattr(tensorrt, name)] == []
    for local, kind in OBJECTS.items():
        # The module of the CUDA runtime, and the context of a backend, have the same names as objects of TensorRT.
        used = {name for name in attributes(local) if not name.startswith("cuda")} - OURS
        assert used and sorted(name for name in used if not hasattr(getattr(tensorrt, kind), name)) == []
    # The dispatcher of the priorities and types reads these names.
    assert {"FLOAT", "HALF", "INT32", "INT64", "BOOL"} <= set(tensorrt.DataType.__members__)
    assert {"STATIC", "ON_PROFILE_CHANGE"} <= set(tensorrt.ExecutionContextAllocationStrategy.__members__)


def test_the_cuda_runtime_has_what_is_used() -> None:
    runtime: Any = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    used = {*calls(), *(name for name in attributes("runtime") if name.startswith("cuda"))}
    assert len(used) > 10 and sorted(name for name in used if not hasattr(runtime, name)) == []

"""Tests see the code from outside: none uses a private name of another module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from support.source_tree import ROOT

TESTS = ROOT / "tests"
# Names that Python documents in spite of their underscore.
DOCUMENTED = {"_asdict", "_fields", "_make", "_replace"}
# What remains, by file and name, and why.
LEFT = {
    ("execution/instances/test_model_instance.py", "_queue"): "a batch is run past the queue, which must not see it",
    ("execution/instances/test_model_instance.py", "_responder"): "the same: its requests are counted by hand",
    ("backends/frameworks/test_torch_aoti.py", "_inductor"): "the name under which torch documents AOTInductor",
    ("backends/openvino/test_settings.py", "_request"): "properties of the compiled model, which OpenVINO alone tells",
    ("support/openvino_backend.py", "_request"): "the same",
    ("backends/tensorflow/test_settings.py", "_CPU_INFO"): "the file in which the system tells what a processor has",
    ("execution/worker/test_python_requests.py", "_running"): "a call that no worker has made, so that it can be wrong",
    ("execution/worker/test_python_requests.py", "_writer"): "which of two ways a batch travels shows nowhere else",
    ("execution/worker/test_python_requests.py", "_uniform"): "the same",
    ("execution/worker/test_uniform_steps.py", "_sender"): "the socket whose turn of the loop a test has to hit",
    ("execution/worker/test_uniform_steps.py", "_connection"): "the same",
    ("frontends/grpc/server/test_connection.py", "_age_ns"): "the ages of 50 connections, spread over 200 s each",
    ("frontends/http/server/test_connection.py", "_state"): "half a request has come: nothing is answered yet",
    ("frontends/http/server/test_connection.py", "_service"): "how much has come of a request that is not whole",
    ("frontends/http/server/test_content_coding.py", "_coding"): "a body is being unpacked: nothing is answered yet",
    ("frontends/http/server/test_content_coding.py", "_inflated_bytes"): "the same",
    ("frontends/http/v2/test_generate.py", "_open"): "work for a caller who has left, and hears of nothing",
    ("frontends/net/test_listener.py", "_transport"): "an option of the server's socket",
    ("lifecycle/memory/test_budget_of_ensembles.py", "_ensembles"): "a load has reached the point where it waits",
    ("lifecycle/test_control_bounds.py", "_draining"): "the end of a version that is no longer in the index",
    ("lifecycle/traffic/test_routed_model.py", "_draining"): "the same",
    ("scheduling/sequence/test_sequences.py", "_free"): "each slot is in one place, after every step of the machine",
    ("scheduling/sequence/test_sequences.py", "_suspended"): "the same",
    ("scheduling/sequence/test_sequences.py", "_waiting_for_slot"): "the same",
    ("support/sequence_models.py", "_sequences"): "the same, in a model",
    ("support/sequence_models.py", "_free"): "the same, in a model",
    ("support/sequence_models.py", "_suspended"): "the same, in a model",
    ("worker/test_tensors.py", "_payload"): "the bytes of a tensor that only the process of a model can send",
}


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in DOCUMENTED


def foreign_names(tree: ast.AST) -> Iterator[str]:
    """The private names of other modules and classes that a module uses: attributes, imports, texts for ``setattr``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.Call) and is_access(node.func):
            texts = (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
            yield from (part for text in texts for part in text.split("."))


def is_access(function: ast.expr) -> bool:
    """Whether it gets at an attribute by its name: ``getattr`` and its like, and ``monkeypatch.setattr``."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("getattr", "setattr", "delattr", "hasattr")


@cache
def found() -> frozenset[tuple[str, str]]:
    """Every private name that a file of the tests uses, in the form of ``LEFT``."""
    return frozenset(
        (path.relative_to(TESTS).as_posix(), name)
        for path in sorted(TESTS.rglob("*.py"))
        for name in foreign_names(ast.parse(path.read_text(encoding="utf-8")))
        if is_private(name)
    )


@pytest.mark.slow
def test_no_private_name_is_used_but_those_that_are_left() -> None:
    assert sorted(found() - LEFT.keys()) == []


def test_what_is_left_is_used() -> None:
    assert sorted(LEFT.keys() - found()) == []


def test_every_way_to_a_private_name_is_found() -> None:
    source = """
import naiad._a
from naiad._b import _c
model._d.x
monkeypatch.setattr("naiad.x._e", 1)
monkeypatch.setattr(model, "_f", 1)
getattr(model, "_g")
self._own, cls._own, model.__class__, pair._replace(x=1)
for _ in range(3): ...
"""
    names = {name for name in foreign_names(ast.parse(source)) if is_private(name)}
    assert names == {"_a", "_b", "_c", "_d", "_e", "_f", "_g"}

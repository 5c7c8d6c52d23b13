"""The public surface: what ``naiad`` exports, that it is typed, and that importing it is cheap."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import metadata, resources

import pytest

import naiad
from support.source_tree import tree

HEAVY = ("numpy", "ml_dtypes", "torch", "onnxruntime", "uvloop", "httptools", "asyncio", "google.protobuf", "rich")
SPARED = ("ml_dtypes", "importlib.metadata", "email", "zipfile", "fractions", "decimal")


def run_python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


@pytest.mark.parametrize("name", naiad.__all__)
def test_every_export_can_be_had(name: str) -> None:
    assert getattr(naiad, name) is not None
    assert name in dir(naiad)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = naiad.nothing  # type: ignore[attr-defined]


def test_exports_are_visible_to_type_checkers() -> None:
    """Each lazy name is also imported ``as`` itself under TYPE_CHECKING, which is what a type checker reads."""
    shown = {
        alias.asname
        for node in ast.walk(tree("naiad"))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert shown == set(naiad.__all__) - {"__version__"}


def test_exports_are_unique() -> None:
    assert len(naiad.__all__) == len(set(naiad.__all__))


def test_package_is_marked_as_typed() -> None:
    assert resources.files("naiad").joinpath("py.typed").is_file()


def test_version_is_the_installed_one() -> None:
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?((a|b|rc)\d+|\.dev\d+)*", naiad.__version__)
    assert metadata.version("naiad") == naiad.__version__


def test_import_is_cheap() -> None:
    loaded = json.loads(run_python("import sys, json, naiad; print(json.dumps(sorted(sys.modules)))"))
    assert [name for name in HEAVY if name in loaded] == []


def test_errors_cost_no_arrays() -> None:
    loaded = json.loads(run_python("import sys, json, naiad; naiad.NaiadError; print(json.dumps(sorted(sys.modules)))"))
    assert "numpy" not in loaded


@pytest.mark.slow
def test_a_server_imports_only_what_all_models_need() -> None:
    """These take 5 MiB together, and a server that needs one imports it then."""
    code = f"import sys, naiad.server.server; print(*sorted(set({SPARED}) & set(sys.modules)))"
    assert run_python(code).split() == []

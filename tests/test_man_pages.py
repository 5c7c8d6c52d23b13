"""The manual pages: as the help texts say today, and without an error of a macro."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "man"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("man_pages", ROOT / "scripts" / "man_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_up_to_date(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", script.WIDTH)
    assert {path.name: path.read_text() for path in PAGES.glob("*.1")} == script.pages(), "run scripts/docs"


def test_texts_are_no_macros(script: ModuleType) -> None:
    page = script.page("x", "a-b", "Usage: x\n\n.TH is a macro\n'quoted' \\n\n\nOptions:\n  -v  more\n      text\n")
    assert page.splitlines()[1:] == [
        ".SH NAME",
        "x \\- a\\-b",
        ".SH SYNOPSIS",
        "x",
        ".SH DESCRIPTION",
        "\\&.TH is a macro",
        "\\&'quoted' \\en",
        ".PP",
        ".SH OPTIONS",
        ".TP",
        "\\fB\\-v\\fR",
        "more",
        "text",
    ]


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here: apt-get install man-db")
@pytest.mark.parametrize("path", sorted(PAGES.glob("*.1")), ids=lambda path: path.stem)
def test_man_shows_a_page_without_a_warning(path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    command = ["man", "--warnings", "-l", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0
    assert done.stderr == ""
    assert path.stem in done.stdout

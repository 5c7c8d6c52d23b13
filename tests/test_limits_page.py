"""The page of limits names a test for each bound: it must exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\|.*\| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)


def test_every_bound_has_a_test() -> None:
    page = (ROOT / "docs" / "limits.md").read_text()
    table = page.partition("## What is bounded")[2]
    named = ROW.findall(table)
    assert len(named) == table.count("\n|") - 2
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in _text(file)]
    assert missing == []


def _text(file: str) -> str:
    path = ROOT / file
    return path.read_text() if path.exists() else ""

"""``naiad perf`` that is interrupted before it has begun."""

from __future__ import annotations

from pathlib import Path

from support.interrupted_imports import interrupted_import


def test_an_interrupt_while_modules_are_imported_ends_in_order(tmp_path: Path) -> None:
    code, errors = interrupted_import(["perf", "-m", "a"], tmp_path, "naiad.perf.input.error", 60)
    assert code == 130
    assert "Traceback" not in errors
    assert "error" not in "".join(line for line in errors.splitlines() if not line.startswith("import time:"))

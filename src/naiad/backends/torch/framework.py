"""The import of torch, with threads that sleep while they wait."""

from __future__ import annotations

import importlib
import os

from naiad.processes.openmp import let_openmp_sleep


def import_torch() -> None:
    """Import torch, or raise what its import raises."""
    let_openmp_sleep(os.environ)
    importlib.import_module("torch")

"""The import of torch, with threads that sleep while they wait."""

from __future__ import annotations

import importlib
import os

from naiad.backends.shared.import_lock import IMPORT_LOCK
from naiad.processes.openmp import let_openmp_sleep


def import_torch() -> None:
    """Import torch, or raise what its import raises."""
    let_openmp_sleep(os.environ)
    importlib.import_module("torch")


def import_dynamo() -> None:
    """Import the part of torch that looks into programs, which torch does when it first needs it.

    Threads that load models beside each other would find it half imported.
    """
    with IMPORT_LOCK:
        importlib.import_module("torch._dynamo")

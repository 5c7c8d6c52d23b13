"""How the threads of torch wait for each other: what OpenMP itself says when torch loads it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

LOAD = """
from pathlib import Path
from naiad.backend_api.backend import BackendContext
from naiad.backends import registry
registry.create("pytorch", BackendContext("m", 1, Path("model.pt"), None, {}, 1))
"""


def spins(**more: str) -> int:
    """How often a thread of torch looks for work before it sleeps, as the OpenMP of GNU says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **more}
    done = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    if found is None:
        pytest.skip("this build of torch has another OpenMP")
    return int(found[1])


def test_threads_that_wait_sleep() -> None:
    assert spins() == 0


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_the_environment_may_say_how_threads_wait(name: str) -> None:
    asked = {"GOMP_SPINCOUNT": "2000", "OMP_WAIT_POLICY": "ACTIVE"}[name]
    assert spins(**{name: asked}) >= 2000

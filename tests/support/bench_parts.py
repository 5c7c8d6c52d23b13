"""How the tests of ``scripts/bench`` reach its parts and run the whole of it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
BENCH = SCRIPTS / "bench"
SECONDS_LIMIT = 60


def part(name: str) -> Any:
    """A module of the benchmarks."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return importlib.import_module(f"benchmarks.{name}")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``scripts/bench``."""
    return subprocess.run(
        [sys.executable, str(BENCH), *arguments], capture_output=True, text=True, timeout=SECONDS_LIMIT, check=False
    )

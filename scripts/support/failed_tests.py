"""Run again, alone, what failed in the last run of pytest: which failures need other tests beside them?

A test that shares two cores with others can fail because the machine was late. It must then pass ``TIMES`` times in a
row with the machine for itself, and it is named. More than ``MOST`` failures are no accident, and are not run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TIMES = 3
MOST = 5
LAST_FAILED = ".pytest_cache/v/cache/lastfailed"


def read_failed(root: Path) -> list[str]:
    """The node ids of the tests, and the files that could not be collected, that failed last."""
    try:
        return sorted(json.loads((root / LAST_FAILED).read_text()))
    except FileNotFoundError:
        return []


def passes_alone(name: str) -> bool:
    """Whether a test passes each time, with nothing beside it."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q", name]
    return all(subprocess.run(command, check=False).returncode == 0 for _ in range(TIMES))


def main() -> int:
    failed = read_failed(Path.cwd())
    if not 0 < len(failed) <= MOST:
        return 1
    unstable = []
    for name in failed:
        print(f"again, alone: {name}", flush=True)
        if not passes_alone(name):
            print(f"FAILED alone too: {name}", flush=True)
            return 1
        unstable.append(name)
    for name in unstable:
        found = f"failed beside other tests and passed {TIMES} times alone; it has to be mended"
        print(f"UNSTABLE: {name} {found}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

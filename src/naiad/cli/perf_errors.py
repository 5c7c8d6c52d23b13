"""What the commands of ``naiad perf`` say when they fail, and what their processes return then."""

from __future__ import annotations

import sys
from typing import Final

from naiad.perf.options import EXIT_CODE, PerfOptionError

FAILED: Final = 99
"""What the process returns when the measurement failed: the reference's ``GENERIC_ERROR``."""


def refuse(error: PerfOptionError, command: str = "naiad perf") -> int:
    """Say what is wrong with the options; returns the exit code."""
    print(f"{error}\nRun '{command} --help' for the options.", file=sys.stderr)
    return EXIT_CODE


def unwritten(error: OSError) -> str:
    """Why a file could not be written."""
    return f"cannot write '{error.filename}': {error.strerror}"

"""What the commands run: Naiad's own, with the same arguments."""

from __future__ import annotations

import sys

from naiad.cli.main import COMMANDS, main
from naiad_compat.programs import others

REPLACED = {"tritonserver": "serve", "perf_analyzer": "perf", "model-analyzer": "analyze"}
"""The commands of Naiad by the names that they get."""


def tritonserver() -> int:
    """Run ``naiad serve``; returns the exit code."""
    return _run("tritonserver")


def perf_analyzer() -> int:
    """Run ``naiad perf``; returns the exit code."""
    return _run("perf_analyzer")


def model_analyzer() -> int:
    """Run ``naiad analyze`` where Naiad has it; returns the exit code."""
    return _run("model-analyzer")


def _run(name: str) -> int:
    command = REPLACED[name]
    for original in others(name, sys.argv[0])[:1]:
        _say(f"note: this {name} is Naiad's ('naiad {command}'); another one is {original}")
    if command not in COMMANDS:
        _say(f"error: {name} stands for 'naiad {command}', which this Naiad does not have; install the original")
        return 1
    return main([command, *sys.argv[1:]])


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")

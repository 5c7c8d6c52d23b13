"""Files whose numbers treelite trusts, which are read in a process of their own first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from naiad.backends.fil.failures import remedy_of
from naiad.backends.fil.trial_main import SOUND
from naiad.backends.shared.commands import run_command
from naiad.errors import ModelLoadError, first_line

if TYPE_CHECKING:
    from naiad.backends.fil.formats import ForestFormat

_PROGRAM: Final = Path(__file__).with_name("trial_main.py")
_LEAST_S: Final = 10
_BYTES_PER_S: Final = 1 << 20
"""Far fewer than are read in a second, even of trees with a few nodes."""
_BUSY_MACHINE: Final = 6


def try_file(model: str, file: Path, file_format: ForestFormat) -> None:
    """Find out whether treelite can read a file and run what it holds, and come to an end.

    It takes as long as the load itself, and half a second more.

    Raises:
        ModelLoadError: it cannot; the text says why.
    """
    cpu_s = _LEAST_S + file.stat().st_size // _BYTES_PER_S
    # -P: the folder of the program has modules with ordinary names.
    command: list[str | Path] = [sys.executable, "-P", _PROGRAM, file.absolute(), str(cpu_s), file_format.model_type]
    try:
        text = run_command(command, "a trial in a process of its own", float(cpu_s * _BUSY_MACHINE))
    except ModelLoadError as error:
        raise _damaged(model, file, file_format, first_line(error).rstrip(":")) from None
    found = (text.strip().splitlines() or ["it says nothing"])[-1]
    if found != SOUND:
        raise _damaged(model, file, file_format, found)


def _damaged(model: str, file: Path, file_format: ForestFormat, reason: str) -> ModelLoadError:
    return ModelLoadError(
        f"model '{model}': treelite cannot read {file} as {file_format.title}: {reason}; {remedy_of(file, reason)}"
    )

"""The error of a command line that cannot be run."""

from __future__ import annotations

from typing import ClassVar, Final

from naiad.errors import OptionError

EXIT_CODE: Final = 3
"""What the process returns for wrong options: the reference's ``OPTION_ERROR``."""


class PerfOptionError(OptionError):
    """The options are wrong: one line for each problem, each of which begins with ``Error: ``."""

    exit_code: ClassVar[int] = EXIT_CODE

"""What can end an analysis."""

from __future__ import annotations

from naiad.errors import NaiadError, OptionError


class AnalyzeOptionError(OptionError):
    """The configuration file or the command line is wrong: one line for each problem."""


class AnalyzeError(NaiadError):
    """The analysis cannot go on: the text says why, and what to do."""


class TrialError(Exception):
    """One configuration cannot be measured; the text is the reason that its row gives."""

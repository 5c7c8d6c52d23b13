"""What goes wrong with a conversion as a whole. What goes wrong in one step is a ``StepFailure``."""

from __future__ import annotations

from dataclasses import dataclass

from naiad.errors import NaiadError


class ConvertError(NaiadError):
    """The model, its samples or the settings cannot be used; the text says what to change."""

    @property
    def message(self) -> str:
        """The text: what scripts of Triton Model Navigator read."""
        return str(self)


class FileThereError(ConvertError, FileExistsError):
    """A file or a folder is there already, and is not written over."""


class FileMissingError(ConvertError, FileNotFoundError):
    """A file or a folder that is needed is not there."""


class SourceError(ConvertError):
    """The model and its samples do not fit each other, or fail.

    Attributes:
        failure: what is wrong, without the script that shows it again.
    """

    def __init__(self, failure: str, script: str) -> None:
        super().__init__(f"{failure}\nrun it again: {script}")
        self.failure = failure


class StepError(Exception):
    """A step cannot do its work.

    Args:
        reason: what was found.
        advice: what to change; empty when that is not known.
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class StepFailure:
    """Why a step has no result.

    Attributes:
        reason: in one line.
        operator: the operator that the framework named; empty when it named none.
        advice: what to change; empty when that is not known.
        is_missing_package: whether nothing but a package is missing.
        is_time_limit: whether the step was ended for the time that it took.
    """

    reason: str
    operator: str = ""
    advice: str = ""
    is_missing_package: bool = False
    is_time_limit: bool = False

    def __str__(self) -> str:
        operator = f" (operator {self.operator})" if self.operator and self.operator not in self.reason else ""
        return f"{self.reason}{operator}" + (f"; {self.advice}" if self.advice else "")

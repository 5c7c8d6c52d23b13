"""An option of ``naiad perf``: its names, where its value goes, and how the value is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from naiad.perf.load_mode import LoadMode


class PerfGroup(Enum):
    """The headings of the help text, in its order."""

    GENERAL = "General"
    MEASUREMENT = "Measurement"
    LOAD = "Load"
    SEQUENCES = "Sequence models"
    INPUT = "Input data"
    REQUEST = "Requests"
    SERVER = "Server"
    METRICS = "Metrics"
    REPORT = "Reports"
    TRACE = "Traces"
    DEPRECATED = "Deprecated"


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value.

    Attributes:
        label: stands for the value in the help text; empty for an option without a value.
        read: the value of a text. It raises ValueError: without words where the text cannot be read at all, else with
            what a valid value is; or PerfOptionError with a text of its own.
        constant: the value of an option that takes none, or need not have one.
        is_optional: whether a value may follow after ``=``.
        words: all valid values, where they are few.
    """

    label: str
    read: Callable[[str], Any]
    constant: Any = None
    is_optional: bool = False
    words: tuple[str, ...] = ()

    @property
    def takes_value(self) -> bool:
        """Whether the next word is the value when none stands after ``=``."""
        return bool(self.label) and not self.is_optional


@dataclass(frozen=True, slots=True)
class PerfOption:
    """One option of the command line.

    Attributes:
        name: the long name without dashes; empty for an option that only has a letter.
        field: where the value lands in ``PerfSettings``, such as ``measure.percentile``; ``target.tls.x`` is the entry
            ``x`` of the dictionary ``target.tls``; a name without a dot is handled apart.
        letter: the short name; empty for none.
        title: what errors call it, where that is not made of its names.
        default: the default as it would be written; empty for none.
        mode: the load mode that the option chooses.
        is_newer: whether release 2.51 of the reference lacks it: abbreviations that it takes keep their meaning.
        remark: a warning that is printed when the option is given.
    """

    name: str
    field: str
    kind: ValueKind
    group: PerfGroup
    help: str
    letter: str = ""
    title: str = ""
    default: str = ""
    mode: LoadMode | None = None
    is_repeatable: bool = False
    is_newer: bool = False
    remark: str = ""

    @property
    def key(self) -> str:
        """The long name, else the letter: one option has one key."""
        return self.name or self.letter

    @property
    def flags(self) -> tuple[str, ...]:
        """Its names as they are written: ``--percentile``, ``-m``."""
        return (*((f"--{self.name}",) if self.name else ()), *((f"-{self.letter}",) if self.letter else ()))

    @property
    def shown(self) -> str:
        """Its names as errors have them: ``--max-trials (-r)``."""
        first, *others = self.flags
        return self.title or " ".join([first, *(f"({other})" for other in others)])

    @property
    def variable(self) -> str:
        """The environment variable that sets it: ``NAIAD_PERF_PERCENTILE``; empty where none does."""
        # Not of ``compare``: it is another command rather than a setting.
        if self.group is PerfGroup.DEPRECATED or self.field in ("", "compare"):
            return ""
        word = self.name or self.field.rpartition(".")[2]
        return "NAIAD_PERF_" + word.upper().replace("-", "_")

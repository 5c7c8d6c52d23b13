"""Everything that is wrong with one model configuration, and where it stands in its file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from naiad.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Origin:
    """The file a configuration was read from and the line (from 1) of each field path in it.

    A path looks like ``input[0].dims[1]`` or ``parameters["alpha"].string_value``.
    """

    file: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)

    def line(self, path: str) -> int | None:
        """The line of ``path``, or of the nearest message around it that the file has; None when there is none."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = parent(path)
        return None

    def error(self, message: str, path: str = "") -> ConfigError:
        """A ``ConfigError`` placed at ``path``."""
        return ConfigError(message, self.file, self.line(path))


class Violation(NamedTuple):
    """A rule that a configuration breaks, and the field path where."""

    path: str
    message: str


def parent(path: str) -> str:
    """The path of the message or list that holds ``path``; "" at the top."""
    # The key of a map may contain dots and brackets.
    if path.endswith('"]'):
        return path[: path.rindex('["')]
    return path[: max(path.rfind("."), path.rfind("["), 0)]


class LoadingConfigError(ConfigError):
    """A problem that the reference finds only while it loads a version: with its instances, inputs or outputs."""


class ConfigProblemsError(ConfigError):
    """One or more problems of one configuration, in ``problems``.

    ``str(error)`` is the first one, as the protocol shows it; ``located()`` has a line for each.
    """

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        first = problems[0]
        super().__init__(str(first), first.file, first.line)
        self.problems = tuple(problems)

    @property
    def is_of_loading(self) -> bool:
        """Whether the first problem only shows when a version is loaded."""
        return isinstance(self.problems[0], LoadingConfigError)

    def located(self) -> str:
        return "\n".join(problem.located() for problem in self.problems)

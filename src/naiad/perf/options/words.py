"""The words of a command line as options with their values, as ``getopt_long`` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from naiad.perf.options.option import PerfOption
from naiad.perf.options.table import BY_LETTER, BY_NAME
from naiad.spelling import nearest_spelling

HELP_WORDS: Final = ("-h", "-?", "--help")


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it was written; ``value`` is None where none was."""

    option: PerfOption
    written: str
    value: str | None


@dataclass(slots=True)
class Words:
    """What the words of a command line are.

    Attributes:
        positional: words that belong to no option.
        problems: texts of what is no option, or lacks its value.
    """

    given: list[Given] = field(default_factory=list)
    positional: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    wants_help: bool = False
    wants_version: bool = False


def split(words: Sequence[str]) -> Words:
    """The options and other words; nothing is raised, problems are listed."""
    found, rest = Words(), list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            found.positional += reversed(rest)
            break
        if word.startswith("--"):
            _read_long(word, rest, found)
        elif word.startswith("-") and word != "-":
            _read_letters(word, rest, found)
        else:
            found.positional.append(word)
    return found


def _read_long(word: str, rest: list[str], found: Words) -> None:
    name, mark, value = word.removeprefix("--").partition("=")
    names = _completions(name)
    if len(names) > 1:
        possible = " ".join(f"'--{other}'" for other in names)
        found.problems.append(f"option '--{name}' is ambiguous; possibilities: {possible}")
    elif not names:
        near = nearest_spelling(name, [*BY_NAME, "help", "version"])
        hint = f"; did you mean '--{near}'?" if near else ""
        found.problems.append(f"unrecognized option '--{name}'{hint}")
    elif names[0] in ("help", "version"):
        found.wants_help |= names[0] == "help"
        found.wants_version |= names[0] == "version"
    else:
        _take(BY_NAME[names[0]], value if mark else None, rest, found)


def _completions(name: str) -> list[str]:
    """The long names that ``name`` can stand for: itself, or those that begin with it."""
    known = ["help", "version", *BY_NAME]
    if name in known:
        return [name]
    fitting = [other for other in known if name and other.startswith(name)]
    # A command line that works with the reference keeps its meaning here.
    of_reference = [other for other in fitting if other in BY_NAME and not BY_NAME[other].is_newer]
    return of_reference or fitting


def _take(option: PerfOption, value: str | None, rest: list[str], found: Words) -> None:
    written = f"--{option.name}"
    if value is not None and not option.kind.label:
        found.problems.append(f"option '{written}' doesn't allow an argument")
    elif value is None and option.kind.takes_value and not rest:
        found.problems.append(f"option '{written}' requires an argument")
    else:
        if value is None and option.kind.takes_value:
            value = rest.pop()
        found.given.append(Given(option, written, value))


def _read_letters(word: str, rest: list[str], found: Words) -> None:
    """Read ``-va`` and ``-b4``: letters without values, the last of which may have its value behind it."""
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        option = BY_LETTER.get(letter)
        if letter in "h?":
            found.wants_help = True
        elif option is None:
            found.problems.append(f"invalid option -- '{letter}'{_long_hint(word)}")
            return
        elif not option.kind.takes_value:
            found.given.append(Given(option, f"-{letter}", None))
        elif letters or rest:
            found.given.append(Given(option, f"-{letter}", letters or rest.pop()))
            return
        else:
            found.problems.append(f"option requires an argument -- '{letter}'")


def _long_hint(word: str) -> str:
    name = word[1:].partition("=")[0]
    return f"; did you mean '--{name}'?" if name in BY_NAME else ""

"""From the command line of ``naiad perf`` to its settings, with everything that is wrong about it at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from naiad.options.kinds import read_boolean
from naiad.perf.load_mode import LoadMode
from naiad.perf.options.check import problems_of, warnings_of
from naiad.perf.options.error import PerfOptionError
from naiad.perf.options.option import PerfGroup, PerfOption
from naiad.perf.options.settle import settle
from naiad.perf.options.table import BY_NAME, OPTIONS
from naiad.perf.options.words import Given, split
from naiad.perf.settings import PerfSettings

VARIABLE_SEPARATOR: Final = ";"
"""Separates the values of a repeatable option in its environment variable."""

_SEVERAL_MODES: Final = (
    "Cannot specify more then one inference load mode. Please choose only one of the following modes: "
    "--concurrency-range, --periodic-concurrency-range, --request-rate-range, or --request-intervals."
)
_BESIDE_COMPARE: Final = frozenset({"compare", "html", "json", "f", "v"})


@dataclass(slots=True)
class Reading:
    """What was read so far.

    Attributes:
        values: by field; a repeatable option has a list.
        given: the keys of the options that were given.
    """

    values: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def parse_perf(words: Sequence[str], environ: Mapping[str, str]) -> PerfSettings:
    """The settings that a command line and the environment ask for.

    The command line overrides the environment. Words that ask for help or for the version are passed over:
    ``wants_help`` and ``wants_version`` find them.

    Raises:
        PerfOptionError: one line for each problem.
    """
    found = split(words)
    reading = Reading(problems=found.problems)
    for given in (*_from_environment(found.given, environ, reading), *found.given):
        _read(given, reading)
    if "compare" in reading.given:
        return _comparison(found.positional, reading)
    _warn_of_other_words(found.positional, reading)
    _check_modes(reading)
    if reading.problems:
        raise _error(reading.problems)
    settings = settle(reading.values, reading.given.keys())
    if problems := problems_of(settings):
        raise _error(problems)
    return settle(reading.values, reading.given.keys(), (*reading.warnings, *warnings_of(settings, reading.values)))


def wants_help(words: Sequence[str]) -> bool:
    """Whether ``-h``, ``-?`` or ``--help`` is among the options."""
    return split(words).wants_help


def wants_version(words: Sequence[str]) -> bool:
    """Whether ``--version`` is among the options."""
    return split(words).wants_version


def _error(problems: Sequence[str]) -> PerfOptionError:
    return PerfOptionError("\n".join(f"Error: {text}" for text in dict.fromkeys(problems)))


def _from_environment(given: Sequence[Given], environ: Mapping[str, str], reading: Reading) -> list[Given]:
    """The options whose variables are set, except those that the command line overrides."""
    fields = {item.option.field for item in given}
    has_mode = any(item.option.mode or item.option.group is PerfGroup.DEPRECATED for item in given)
    found: list[Given] = []
    for option in OPTIONS:
        text = environ.get(option.variable, "") if option.variable else ""
        if not text or option.field in fields or (option.mode and has_mode):
            continue
        if option.kind.takes_value:
            parts = text.split(VARIABLE_SEPARATOR) if option.is_repeatable else [text]
            found += [Given(option, option.variable, part) for part in parts if part]
        elif _is_on(option, text, reading):
            found.append(Given(option, option.variable, None))
    return found


def _is_on(option: PerfOption, text: str, reading: Reading) -> bool:
    try:
        return read_boolean(text)
    except ValueError:
        reading.problems.append(f"Failed to parse {option.variable}. Invalid value provided: {text}")
        return False


def _read(given: Given, reading: Reading) -> None:
    option = given.option
    reading.given[option.key] = given
    if option.key == "enable-mpi":
        reading.problems.append(
            "--enable-mpi is not supported by naiad perf: start one naiad perf for each model. --client-workers "
            "spreads the load of one over processes."
        )
        return
    if option.remark:
        reading.warnings.append(option.remark)
    try:
        value = option.kind.constant if given.value is None else option.kind.read(given.value)
    except PerfOptionError as error:
        reading.problems.append(str(error))
    except ValueError as error:
        reading.problems.append(_refusal(given, error.args))
    else:
        _store(option, value, reading)


def _refusal(given: Given, args: tuple[Any, ...]) -> str:
    # Readers raise without words for a text that means nothing; Python's own readers have words of their own.
    if len(args) == 1 and args[0][:1].isupper():
        return f"Failed to parse {given.option.shown}. {args[0]}"
    return f"Failed to parse {given.written}. Invalid value provided: {given.value}{_hint(given)}"


def _hint(given: Given) -> str:
    """A long name that was written with one dash: ``-percentile=95``, which is ``-p`` with a value."""
    name = (given.written.removeprefix("-") + (given.value or "")).partition("=")[0]
    return f"; did you mean '--{name}'?" if not given.written.startswith("--") and name in BY_NAME else ""


def _store(option: PerfOption, value: Any, reading: Reading) -> None:
    if option.is_repeatable:
        reading.values.setdefault(option.field, []).append(value)
    elif option.key == "v":
        reading.values[option.field] = min(reading.values.get(option.field, 0) + 1, 2)
    elif option.field:
        reading.values[option.field] = value
    if option.mode:
        reading.values["load.mode"] = option.mode


def _check_modes(reading: Reading) -> None:
    modes = {given.option.mode for given in reading.given.values() if given.option.mode}
    if len(modes) > 1:
        later = modes & {LoadMode.FIXED_SCHEDULE, LoadMode.SESSION_CONCURRENCY}
        names = " and ".join(given.written for given in reading.given.values() if given.option.mode)
        reading.problems.append(f"{_SEVERAL_MODES} Found {names}." if later else _SEVERAL_MODES)
    if modes and reading.given.keys() & {"t", "c", "d"}:
        (name,) = [given.written for given in reading.given.values() if given.option.mode][:1]
        reading.problems.append(f"Cannot use deprecated options with {name}.")


def _warn_of_other_words(positional: Sequence[str], reading: Reading) -> None:
    for word in positional:
        reading.warnings.append(f"the word '{word}' belongs to no option; it is ignored, as the reference does")


def _comparison(positional: Sequence[str], reading: Reading) -> PerfSettings:
    """The settings of ``--compare``, which measures nothing.

    Raises:
        PerfOptionError: there are fewer than two files, one is missing, or an option has no meaning beside it.
    """
    others = [item.written for key, item in reading.given.items() if key not in _BESIDE_COMPARE]
    # Variables of the environment are meant for runs, and are no reason to refuse.
    others = [name for name in others if name.startswith("-")]
    if others:
        reading.problems.append(f"--compare measures nothing, so that it cannot be used with {', '.join(others)}.")
    files = reading.values["compare"] = [*reading.values.get("compare", []), *map(_path, positional)]
    if len(files) < 2:
        reading.problems.append("Failed to parse --compare. Expected two or more JSON files, such as A.json B.json.")
    reading.problems += [
        f"Failed to parse --compare. There is no file '{file}'." for file in files if not os.path.isfile(file)
    ]
    if reading.problems:
        raise _error(reading.problems)
    return settle(reading.values, reading.given.keys(), tuple(reading.warnings))


def _path(word: str) -> Any:
    return BY_NAME["compare"].kind.read(word)

"""From a command line and the environment to ``ServerOptions``, with everything that is wrong about them at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from naiad.errors import OptionError
from naiad.options.cloud_platform import platform_values
from naiad.options.option import Option
from naiad.options.reference import OWN
from naiad.options.remote_uri import RemoteUri, is_remote
from naiad.options.server import LISTENER_FIELDS, OPTIONS, ServerOptions
from naiad.spelling import nearest_spelling

VARIABLE_SEPARATOR = ";"
"""Separates the values of a repeatable option in its environment variable."""

_HELP = ("-h", "--help")


@dataclass(frozen=True, slots=True)
class _Given:
    """An option as written on the command line; ``value`` is None for an option without a value."""

    name: str
    value: str | None


@dataclass(slots=True)
class _Reading:
    """The values and problems found so far."""

    values: dict[str, Any] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def reject(self, option: Option, reason: str, source: str = "") -> None:
        self.failed.add(option.field)
        self.add_problem(f'Bad option: "{option.flag}"{source}. {reason}')

    def add_problem(self, text: str) -> None:
        """Add a problem, once even if the option was given several times."""
        if text not in self.problems:
            self.problems.append(text)

    def accept(self, option: Option, text: str, source: str = "") -> None:
        """Add a value of ``option``: a repeatable option collects its values, else the last one counts."""
        try:
            value = option.kind.read(text)
        except ValueError as error:
            self.reject(option, f"{str(error).removesuffix('.')}. Expected: {option.kind.expected}.", source)
            return
        self.values[option.field] = (*self.values.get(option.field, ()), value) if option.repeatable else value


def wants_help(argv: Iterable[str]) -> bool:
    """True when ``-h`` or ``--help`` is among the options of the command line."""
    for word in argv:
        if word == "--":
            return False
        if word in _HELP:
            return True
    return False


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """The options of ``naiad serve``.

    The command line overrides the environment, and that overrides the variables of a cloud platform. A value is given
    as ``--name=value`` or ``--name value``; an empty environment variable counts as not set, and ``;`` separates the
    values of a repeatable option there.

    Raises:
        OptionError: one line for each problem.
    """
    reading, paths = read(argv, environ, OPTIONS)
    _read_platform(environ, reading, bool(paths))
    if not paths and not {"model_repository"} & (reading.values.keys() | reading.failed):
        reading.problems.append(
            "--model-repository must be specified: give --model-repository=<folder of models>, or name model files "
            "such as model.onnx"
        )
    return settle(reading, paths)


def read(
    argv: Sequence[str], environ: Mapping[str, str], options: Sequence[Option]
) -> tuple[_Reading, tuple[Path | RemoteUri, ...]]:
    """The values of ``options`` from the command line and the environment, and the positional arguments."""
    reading = _Reading()
    given, positional = _split(argv, _by_name(options))
    seen = {_read_given(item, options, reading) for item in given}
    for option in options:
        # A variable that the command line overrides is not read, so a wrong value in it is no problem.
        if option.field not in seen:
            _read_variable(option, environ, reading)
    _warn_of_variables(environ, reading)
    return reading, _existing(positional, reading)


def settle(reading: _Reading, paths: tuple[Path | RemoteUri, ...]) -> ServerOptions:
    """The options as read, checked together.

    Raises:
        OptionError: one line for each problem.
    """
    options = ServerOptions(
        **reading.values, paths=paths, warnings=tuple(reading.warnings), given=frozenset(reading.values)
    )
    # The default stands in for an unreadable value: with it the checks would report conflicts that nobody wrote.
    problems = reading.problems if reading.failed & LISTENER_FIELDS else reading.problems + options.problems()
    if problems:
        raise OptionError("\n".join(problems))
    return options


def _by_name(options: Iterable[Option]) -> dict[str, Option]:
    return {name.replace("_", "-"): o for o in options for name in (o.field, *o.aliases)}


def _split(argv: Sequence[str], known: Mapping[str, Option]) -> tuple[list[_Given], list[str]]:
    """The options of the command line and the rest of its words."""
    given: list[_Given] = []
    positional: list[str] = []
    words = list(reversed(argv))
    while words:
        word = words.pop()
        if word == "--":
            return given, positional + words[::-1]
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, mark, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            name = _completed(name, known)
        if mark:
            given.append(_Given(name, value))
        # A value may begin with one "-", as a negative number does; two begin the next option.
        elif _takes_value(name, known) and words and not words[-1].startswith("--"):
            given.append(_Given(name, words.pop()))
        else:
            given.append(_Given(name, None))
    return given, positional


def _completed(name: str, known: Mapping[str, Option]) -> str:
    """The one known name that begins with ``name``, an abbreviation as in the reference; else ``name`` itself."""
    others = _by_name(OPTIONS)
    if not name or name in known or name in others:
        return name
    found = {option.field: full for full, option in known.items() if full.startswith(name)}
    if len(found) > 1:
        # A command line that works with the reference keeps its meaning here.
        found = {field: full for field, full in found.items() if field not in OWN}
    # It may also abbreviate an option that this command lacks: then it is not completed.
    is_other = any(other.startswith(name) for other in others if other not in known)
    return next(iter(found.values())) if len(found) == 1 and not is_other else name


def _takes_value(name: str, known: Mapping[str, Option]) -> bool:
    """Whether the next word is the value of the option ``name``; a misspelt name counts as the nearest one."""
    option = known.get(name) or _by_name(OPTIONS).get(name)
    # Otherwise the value of a misspelt option would be reported as a missing file as well.
    if option is None:
        option = known.get(nearest_spelling(name, known) or "")
    return option is not None and not option.kind.is_flag


def _read_given(item: _Given, options: Sequence[Option], reading: _Reading) -> str:
    """Read one option of the command line; returns its field, "" for an unknown one."""
    option = _by_name(options).get(item.name)
    if option is None:
        _read_unknown(item, options, reading)
        return ""
    if option.kind.is_flag:
        _read_flag(option, item.value, reading)
    elif item.value is None:
        reading.reject(option, f"a value is missing. Expected: {option.kind.expected}.")
    else:
        reading.accept(option, item.value)
    _remark(option, option.flag, reading)
    return option.field


def _read_flag(option: Option, value: str | None, reading: _Reading) -> None:
    if value is None:
        reading.values[option.field] = True
    else:
        reading.reject(option, f"takes no value. Got {value}")


def _remark(option: Option, name: str, reading: _Reading) -> None:
    text = f"{name} {option.remark}"
    if option.remark and text not in reading.warnings:
        reading.warnings.append(text)


def _read_unknown(item: _Given, options: Sequence[Option], reading: _Reading) -> None:
    """Add the problem of an option that this command does not have, if there is one."""
    flag = item.name if item.name.startswith("-") else "--" + item.name
    if item.name in _by_name(OPTIONS):
        reading.add_problem(f'Bad option: "{flag}". it is an option of naiad serve only.')
        return
    several = [f'"--{name}"' for name in _by_name(options) if item.name and name.startswith(item.name)]
    if len(several) > 1:
        reading.add_problem(f'Bad option: "{flag}". it is ambiguous: {", ".join(several)}.')
        return
    near = nearest_spelling(item.name, _by_name(options))
    if near:
        # Or its absence would be a problem as well.
        reading.failed.add(_by_name(options)[near].field)
    hint = f'; did you mean "--{near}"?' if near else "."
    reading.add_problem(f'Bad option: "{flag}". unknown option{hint}')


def _read_variable(option: Option, environ: Mapping[str, str], reading: _Reading) -> None:
    text = environ.get(option.variable, "")
    if not text:
        return
    texts = text.split(VARIABLE_SEPARATOR) if option.repeatable else [text]
    for part in filter(None, texts):
        reading.accept(option, part, f" (environment variable {option.variable})")
    _remark(option, option.variable, reading)


def _read_platform(environ: Mapping[str, str], reading: _Reading, has_paths: bool) -> None:
    known = {option.field: option for option in OPTIONS}
    given = reading.values.keys() | reading.failed
    for field_name, text, variable in platform_values(environ, has_paths or "model_repository" in given):
        if field_name not in given:
            reading.accept(known[field_name], text, f" (environment variable {variable})")


def _warn_of_variables(environ: Mapping[str, str], reading: _Reading) -> None:
    """Name variables that look like a misspelt option. Only near ones: others share the prefix rightly."""
    known = {option.variable for option in OPTIONS}
    for name in sorted(environ):
        if name.startswith("NAIAD_") and name not in known and (near := nearest_spelling(name, known, 0.85)):
            reading.warnings.append(f"the environment variable {name} is no option; did you mean {near}?")


def _existing(positional: Sequence[str], reading: _Reading) -> tuple[Path | RemoteUri, ...]:
    for word in positional:
        if not is_remote(word) and not os.path.exists(
            word
        ):  # unlike Path.exists, False for names that no file can have
            reading.problems.append(
                f"Unexpected argument: {word}. No such file or folder: arguments without a name are model files "
                "(model.onnx, model.pt), the folder of a model, or repositories."
            )
    return tuple(RemoteUri(word) if is_remote(word) else Path(word) for word in positional)

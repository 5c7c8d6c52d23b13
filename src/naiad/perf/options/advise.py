"""The command line of ``naiad perf advise``: a model, and the options of ``naiad perf`` that go with advice."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from naiad.perf.options.error import PerfOptionError
from naiad.perf.options.kinds import whole
from naiad.perf.options.listing import WIDTH, option_help
from naiad.perf.options.option import PerfGroup, PerfOption
from naiad.perf.options.parse import parse_perf
from naiad.perf.options.table import OPTIONS
from naiad.perf.options.words import Given, split
from naiad.perf.settings import AdviseSettings, PerfSettings

_INTERVAL_MS: Final = 1000
_ROUNDS: Final = 3
_REFUSED: Final = frozenset(
    {"async", "sync", "streaming", "grpc-method", "proto", "model-repository", "triton-server-directory"}
)
_TAKEN: Final = frozenset(
    {"m", "x", "measurement-interval", "percentile", "latency-threshold", "client-workers", "seed", "json"}
)
_ELSEWHERE: Final = ("m", "latency-threshold")
"""Options whose help stands in that of another one, or in the first line."""
_GROUPS: Final = (PerfGroup.REQUEST, PerfGroup.SERVER, PerfGroup.INPUT)
TAKEN: Final = tuple(
    option for option in OPTIONS if option.key in _TAKEN or (option.group in _GROUPS and option.key not in _REFUSED)
)
"""The options of ``naiad perf`` that have a meaning here."""

ROUNDS: Final = PerfOption(
    "rounds",
    "",
    whole(2, "The value must be > 1: one round alone cannot show what is noise.", 100),
    PerfGroup.MEASUREMENT,
    "How often each configuration is measured, in turns with the others.",
    default=str(_ROUNDS),
)
LATENCY_LIMIT: Final = PerfOption(
    "latency-limit",
    "",
    whole(1, "The value must be > 0 msecs."),
    PerfGroup.MEASUREMENT,
    "Latency in milliseconds that the advice has to keep: the average, or that of --percentile. The requests in flight "
    "are halved until it is kept. --latency-threshold is the same.",
)
_HEAD: Final = """\
Usage: naiad perf advise MODEL [OPTION ...]

Tries dynamic batching on and off, and one and two instances, by loading the model with another
configuration, and says what gains and which configuration serves it best. The server has to run
with --model-control-mode=explicit. The configuration that it had is put back at the end.
"""


_OWN_HELP: Final = {
    "percentile": "Percentile of the latency, from 1 to 99, that is shown and limited; -1 for the mean.",
    "json": "JSON file with every trial, what the changes gain, and the best configuration.",
}
_OWN_DEFAULTS: Final = {"measurement-interval": str(_INTERVAL_MS)}


def advise_usage() -> str:
    """The help text."""
    note = "The options are those of naiad perf, with the same environment variables."
    shown = [_in_advice(option) for option in TAKEN if option.key not in _ELSEWHERE]
    lines = "".join(map(option_help, (ROUNDS, LATENCY_LIMIT, *shown)))
    return f"{_HEAD}\nOptions:\n{lines}\n{textwrap.fill(note, WIDTH)}\n"


def _in_advice(option: PerfOption) -> PerfOption:
    """An option with what its help says of advice."""
    key = option.key
    return replace(option, help=_OWN_HELP.get(key, option.help), default=_OWN_DEFAULTS.get(key, option.default))


def parse_advise(words: Sequence[str], environ: Mapping[str, str]) -> AdviseSettings:
    """The settings that a command line, without the word ``advise``, and the environment ask for.

    Raises:
        PerfOptionError: one line for each problem.
    """
    problems: list[str] = []
    rounds, rest = _take_rounds(words, problems)
    found = split(_renamed(rest))
    models = [*found.positional, *(given.value or "" for given in found.given if given.option.key == "m")]
    problems += [*found.problems, *_of_models(models), *map(_not_taken, _others(found.given))]
    if problems:
        raise PerfOptionError("\n".join(f"Error: {text}" for text in dict.fromkeys(problems)))
    written = [word for given in found.given if given.option.key != "m" for word in _written(given)]
    known = {option.variable for option in TAKEN}
    settings = parse_perf(["-m", models[0], *written], {name: environ[name] for name in environ if name in known})
    return AdviseSettings(_settled(settings), rounds)


def _settled(settings: PerfSettings) -> PerfSettings:
    """The settings with the window's length of advice, whose rounds make up for it."""
    if "measurement-interval" in settings.given:
        return settings
    return replace(settings, measure=replace(settings.measure, interval_ms=_INTERVAL_MS))


def _take_rounds(words: Sequence[str], problems: list[str]) -> tuple[int, list[str]]:
    """The value of ``--rounds``, and the other words."""
    flag, rounds = f"--{ROUNDS.name}", _ROUNDS
    rest: list[str] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        name, mark, value = word.partition("=")
        if name != flag:
            rest.append(word)
            continue
        if not mark and not left:
            problems.append(f"option '{flag}' requires an argument")
            break
        text = value if mark else left.pop()
        try:
            rounds = ROUNDS.kind.read(text)
        except ValueError as error:
            reason = error.args[0] if error.args else f"Invalid value provided: {text}"
            problems.append(f"Failed to parse {flag}. {reason}")
    return rounds, rest


def _renamed(words: Sequence[str]) -> list[str]:
    """The words with ``--latency-limit`` under the name that the table has."""
    flag = f"--{LATENCY_LIMIT.name}"
    found = []
    for word in words:
        name, mark, value = word.partition("=")
        found.append(f"--latency-threshold{mark}{value}" if name == flag else word)
    return found


def _of_models(models: Sequence[str]) -> list[str]:
    if len(set(models)) == 1 and models[0]:
        return []
    what = "no model" if not models else f"{len(models)} models: {', '.join(models)}"
    return [f"found {what}, expected one: naiad perf advise MODEL"]


def _others(given: Sequence[Given]) -> list[Given]:
    return [item for item in given if item.option not in TAKEN]


def _not_taken(given: Given) -> str:
    return (
        f"{given.written} cannot be used with advise, which chooses the loads and the configurations itself; 'naiad "
        "perf advise --help' shows what it takes"
    )


def _written(given: Given) -> list[str]:
    """An option as words that mean the same wherever they stand."""
    if given.value is None:
        return [given.written]
    return [f"{given.written}={given.value}"] if given.written.startswith("--") else [given.written, given.value]

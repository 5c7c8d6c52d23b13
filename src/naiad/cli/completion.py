"""``naiad completion``: a shell's script that completes commands, options and their values, made from their table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from naiad.analyze.settings.table import KEYS as ANALYZE_KEYS
from naiad.cli import quickstart_options
from naiad.cli.explain_options import FLAGS, OWN_OPTIONS
from naiad.cli.infer_options import INFER_OPTIONS
from naiad.options import CHECK_OPTIONS, OPTIONS, Option
from naiad.perf.options import OPTIONS as PERF_OPTIONS
from naiad.perf.options import PerfOption
from naiad.perf.options.advise import LATENCY_LIMIT, ROUNDS
from naiad.perf.options.advise import TAKEN as ADVISE_OPTIONS

_HELP: Final = """\
Usage: naiad completion bash|zsh|fish

Prints a script for the shell, which then completes commands, options and their values:

  bash  source <(naiad completion bash)      in ~/.bashrc
  zsh   source <(naiad completion zsh)       in ~/.zshrc, after compinit
  fish  naiad completion fish | source       in ~/.config/fish/config.fish
"""

# bash makes "=" a word of its own between an option and its value. In zsh, and in bash without "=" in COMP_WORDBREAKS,
# the three are one word, so that ``start`` comes before each value. File names are split at line ends alone, since they
# may contain spaces.
_BASH: Final = """\
_naiad() {
    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} start=
    if [[ $word == --*=* ]]; then
        option=${word%%=*}
        start=$option=
        word=${word#*=}
    elif [[ $word == = ]]; then
        word=
    elif [[ $option == = ]]; then
        option=${COMP_WORDS[COMP_CWORD-2]}
    fi
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W '@COMMANDS@' -- "$word"))
        return
    fi
    if (( COMP_CWORD == 2 )) && [[ $command == perf && ${COMP_WORDS[2]} != -* ]]; then
        COMPREPLY=($(compgen -W advise -- "$word"))
        return
    fi
    case $command:$option in
@PERF_VALUES@
        perf:*) ;;
@VALUES@
    esac
    if [[ $word == -* ]]; then
        [[ $command:${COMP_WORDS[2]} == perf:advise ]] && command=advise
        case $command in
            analyze) COMPREPLY=($(compgen -W '@ANALYZE@' -- "$word")) ;;
            advise) COMPREPLY=($(compgen -W '@ADVISE@' -- "$word")) ;;
            check) COMPREPLY=($(compgen -W '@CHECK@' -- "$word")) ;;
            explain) COMPREPLY=($(compgen -W '@EXPLAIN@' -- "$word")) ;;
            infer) COMPREPLY=($(compgen -W '@INFER@' -- "$word")) ;;
            perf) COMPREPLY=($(compgen -W '@PERF@' -- "$word")) ;;
            quickstart) COMPREPLY=($(compgen -W '@QUICKSTART@' -- "$word")) ;;
            completion) ;;
            *) COMPREPLY=($(compgen -W '@SERVE@' -- "$word")) ;;
        esac
        return
    fi
    if [[ $command == completion ]]; then
        COMPREPLY=($(compgen -W '@SHELLS@' -- "$word"))
        return
    fi
    compopt -o filenames 2>/dev/null || :
    local IFS=$'\\n'
    COMPREPLY=($(compgen -P "$start" -f -- "$word"))
}
complete -F _naiad naiad
"""

# zsh runs the script for bash, with its own versions of ``complete`` and ``compgen``.
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def completion(argv: Sequence[str]) -> int:
    """Print the script of the shell that ``argv`` names; returns the exit code."""
    words = list(argv)
    if words and words[0] in ("-h", "--help"):
        print(_HELP, end="")
        return 0
    if len(words) != 1 or words[0] not in SHELLS:
        found = f"found '{' '.join(words)}'" if words else "found nothing"
        print(f"error: expected one of {', '.join(SHELLS)}, {found}\n\n{_HELP}", end="", file=sys.stderr)
        return 1
    print(SHELLS[words[0]](), end="")
    return 0


def _bash() -> str:
    of_serve = ([f"*:{flag}" for flag in _flags(option)] for option in OPTIONS)
    of_perf = ([f"perf:{flag}" for flag in option.flags] for option in PERF_OPTIONS)
    return (
        _BASH.replace("@COMMANDS@", " ".join((*_commands(), "--help", "--version")))
        .replace("@VALUES@", _bash_cases(zip(of_serve, map(_values, OPTIONS), strict=True)))
        .replace("@PERF_VALUES@", _bash_cases(zip(of_perf, (o.kind.words for o in PERF_OPTIONS), strict=True)))
        .replace("@CHECK@", " ".join(_all_flags(CHECK_OPTIONS)))
        .replace("@EXPLAIN@", " ".join((*_all_flags(CHECK_OPTIONS), *OWN_OPTIONS)))
        .replace("@INFER@", " ".join(("--help", *INFER_OPTIONS)))
        .replace("@PERF@", " ".join(_perf_flags(PERF_OPTIONS)))
        .replace("@ANALYZE@", " ".join(("--help", *_analyze_options())))
        .replace("@ADVISE@", " ".join(_perf_flags((ROUNDS, LATENCY_LIMIT, *ADVISE_OPTIONS))))
        .replace("@QUICKSTART@", " ".join(("--help", *quickstart_options.OPTIONS)))
        .replace("@SERVE@", " ".join(_all_flags(OPTIONS)))
        .replace("@SHELLS@", " ".join(SHELLS))
    )


def _bash_cases(offered: Iterable[tuple[Sequence[str], Sequence[str]]]) -> str:
    """The branches that offer values: for each option the patterns that find it, and its values."""
    return "\n".join(
        f"        {'|'.join(patterns)})\n"
        f'            COMPREPLY=($(compgen -P "$start" -W \'{" ".join(values)}\' -- "$word"))\n'
        "            return ;;"
        for patterns, values in offered
        if values
    )


def _zsh() -> str:
    return _ZSH + _bash()


def _fish() -> str:
    return "".join(f"{line}\n" for line in _fish_lines())


def _fish_lines() -> Iterator[str]:
    for name, summary in _commands().items():
        yield f"complete -c naiad -n __fish_use_subcommand -f -a {name} -d {shlex.quote(summary)}"
    yield f"complete -c naiad -n '__fish_seen_subcommand_from completion' -f -a {shlex.quote(' '.join(SHELLS))}"
    for command, options in (("serve", OPTIONS), ("check", CHECK_OPTIONS), ("explain", CHECK_OPTIONS)):
        for option in options:
            for flag in _flags(option):
                yield _fish_option(command, option, flag.removeprefix("--"))
    what = shlex.quote("say which configuration serves a model best")
    yield f"complete -c naiad -n '__fish_seen_subcommand_from perf' -f -a advise -d {what}"
    yield from map(_fish_perf_option, (*PERF_OPTIONS, ROUNDS, LATENCY_LIMIT))
    yield from _fish_own_options("analyze", _analyze_options(), _analyze_flags())
    yield from _fish_own_options("explain", OWN_OPTIONS, FLAGS)
    yield from _fish_own_options("infer", INFER_OPTIONS, ())
    yield from _fish_own_options("quickstart", quickstart_options.OPTIONS, quickstart_options.FLAGS)


def _fish_own_options(command: str, options: Mapping[str, str], without_value: Collection[str]) -> Iterator[str]:
    for flag, text in options.items():
        line = f"complete -c naiad -n '__fish_seen_subcommand_from {command}' -l {flag[2:]} -d {shlex.quote(text)}"
        yield line if flag in without_value else f"{line} -r"


def _fish_perf_option(option: PerfOption) -> str:
    names = "".join((f" -l {option.name}" if option.name else "", f" -s {option.letter}" if option.letter else ""))
    what = shlex.quote(option.help.partition(". ")[0].rstrip("."))
    line = f"complete -c naiad -n '__fish_seen_subcommand_from perf'{names} -d {what}"
    if option.kind.words:
        return f"{line} -x -a {shlex.quote(' '.join(option.kind.words))}"
    return f"{line} -r" if option.kind.takes_value else line


def _fish_option(command: str, option: Option, name: str) -> str:
    what = shlex.quote(option.help.partition(". ")[0].rstrip("."))
    line = f"complete -c naiad -n '__fish_seen_subcommand_from {command}' -l {name} -d {what}"
    if values := _values(option):
        return f"{line} -x -a {shlex.quote(' '.join(values))}"
    return line if option.kind.is_flag else f"{line} -r"


def _commands() -> dict[str, str]:
    from naiad.cli.main import COMMANDS

    return {name: summary for name, (_, summary) in COMMANDS.items()}


def _all_flags(options: Sequence[Option]) -> Iterator[str]:
    yield "--help"
    for option in options:
        yield from _flags(option)


def _analyze_options() -> dict[str, str]:
    return {key.flag: key.help or "without effect here" for key in ANALYZE_KEYS if key.has_option}


def _analyze_flags() -> tuple[str, ...]:
    return tuple(key.flag for key in ANALYZE_KEYS if key.kind.is_flag)


def _perf_flags(options: Iterable[PerfOption]) -> Iterator[str]:
    yield from ("--help", "--version")
    for option in options:
        yield from option.flags


def _flags(option: Option) -> tuple[str, ...]:
    return (option.flag, *("--" + alias.replace("_", "-") for alias in option.aliases))


def _values(option: Option) -> tuple[str, ...]:
    """The values that an option can have, where they are few and known."""
    label = option.kind.label.strip("<>")
    if label == "boolean":
        return ("true", "false")
    return tuple(label.split("|")) if "|" in label else ()


SHELLS: Final[dict[str, Callable[[], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

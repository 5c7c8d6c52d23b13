"""The ``naiad`` command: finds the sub-command and hands over. A command's own module is imported when it is chosen."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence

from naiad.processes.openblas import let_openblas_sleep
from naiad.spelling import nearest_spelling
from naiad.version import __version__

COMMANDS = {
    "serve": ("naiad.cli.serve:serve", "serve models over HTTP and gRPC"),
    "check": ("naiad.cli.serve:check", "show everything that is wrong with models, without serving them"),
    "explain": (
        "naiad.cli.explain:explain",
        "show every field of a configuration: value, origin, meaning",
    ),
    "quickstart": (
        "naiad.cli.quickstart:quickstart",
        "write a model repository with the tutorials' models, without a network",
    ),
    "infer": ("naiad.cli.infer:infer", "send one inference request to a server and print the outputs"),
    "convert": (
        "naiad.cli.convert:convert",
        "convert a model to other formats, verify, measure and publish the best",
    ),
    "perf": ("naiad.cli.perf:perf", "measure a served model's rate and latencies"),
    "analyze": ("naiad.cli.analyze:analyze", "find the configurations that serve models best"),
    "completion": ("naiad.cli.completion:completion", "print a script that completes these commands in a shell"),
}

# What shells report for SIGINT: 128 and its number.
_INTERRUPTED = 130
_QUIET = {"ORT_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
"""Read by ONNX Runtime and by TensorFlow when they are imported.

Without the first ONNX Runtime writes into the user's cache and looks names up; without the second TensorFlow writes
lines of its own to the log for what it reports as errors as well. Processes of models inherit both. Whoever wants
telemetry, or those lines, sets the variable to 0.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (without the program's name; None for the process's own).

    Returns:
        The exit code: 0 when all went well, 1 for anything wrong, 130 when interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    # Before anything opens a file, which would get the number of a closed stream.
    _fill_standard_descriptors()
    for variable, value in _QUIET.items():
        os.environ.setdefault(variable, value)
    let_openblas_sleep(os.environ)
    _hear_interrupts()
    try:
        code = _run(words)
        if sys.stdout is not None:  # it is None when the process was started with it closed
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _hear_interrupts() -> None:
    """Let SIGINT interrupt every command. Shells start background jobs with the signal ignored."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(words: Sequence[str]) -> int:
    first = words[0] if words else "--help"
    if first in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if first == "--version":
        print(f"naiad {__version__}")
        return 0
    if first in COMMANDS:
        return _command(first, words[1:])
    if first.startswith("--") and not nearest_spelling(first, ["--help", "--version"]):
        # The reference has no commands, only options. A mistyped --help or --version gets its hint below.
        return _command("serve", words)
    return _unknown(first)


def _command(name: str, words: Sequence[str]) -> int:
    module, _, function = COMMANDS[name][0].partition(":")
    code: int = getattr(importlib.import_module(module), function)(words)
    return code


def _help() -> str:
    commands = "".join(f"  {name:<12}{summary}\n" for name, (_, summary) in COMMANDS.items())
    return (
        "Usage: naiad <command> [OPTION ...]\n\nAn inference server that speaks the protocols of Triton.\n\n"
        f"Commands:\n{commands}\n"
        "Options:\n  --version   show the version and exit\n  -h, --help  show this text and exit\n\n"
        "naiad <command> --help shows the options of a command. Options alone are those of serve.\n"
    )


def _unknown(word: str) -> int:
    near = nearest_spelling(word, [*COMMANDS, "--help", "--version"])
    hint = f"; did you mean '{near}'?" if near else f"; known ones are {', '.join(COMMANDS)}."
    what = "option" if word.startswith("-") else "command"
    print(f"error: unknown {what} '{word}'{hint}\nRun 'naiad --help' for what there is.", file=sys.stderr)
    return 1


def _fill_standard_descriptors() -> None:
    """Open closed standard streams nowhere: a socket in their place ends the process in uvloop."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one


def _discard_output() -> None:
    """Point standard output nowhere, so that flushing it at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

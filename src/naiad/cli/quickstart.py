"""``naiad quickstart``: writes a model repository with the models of the field's tutorials."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from naiad.cli.quickstart_options import parser
from naiad.config.parsing.suggest import did_you_mean
from naiad.quickstart.catalog import MODELS, Selection, select
from naiad.quickstart.example_model import ExampleModel
from naiad.quickstart.write import README, QuickstartError, write_repository


def quickstart(argv: Sequence[str]) -> int:
    """Write the repository; returns the exit code."""
    own = parser().parse_args(argv)
    try:
        if own.list:
            print("".join(_described(model) for model in MODELS.values()), end="")
            return 0
        if not own.folder:
            raise QuickstartError("name the folder to write, as in: naiad quickstart models")
        _write(own)
    except QuickstartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _write(own: argparse.Namespace) -> None:
    folder = Path(own.folder)
    chosen = _select(own.models)
    write_repository(folder, chosen.models, own.force, lambda name: print(f"writing {name}", flush=True))
    # A name need not be text.
    shown = os.fsencode(folder).decode(errors="backslashreplace")
    count = f"{len(chosen.models)} model{'' if len(chosen.models) == 1 else 's'}"
    print(f"\n{shown} has {count}. The weights of its networks are random.")
    for name, reason in chosen.left_out.items():
        print(f"left out: {name}: {reason}")
    print(f"\nServe them:       naiad serve {shlex.quote(shown)}\nTry more of them: {Path(shown) / README}")


def _select(given: Sequence[str] | None) -> Selection:
    """The models to write. Those that were named have to be there; of all, some may be left out."""
    names = given or ()
    if given is not None and not names:
        raise QuickstartError("--models names no model, expected names such as simple,add_sub")
    for name in names:
        if name not in MODELS:
            known = did_you_mean(name, MODELS) or "; naiad quickstart --list shows all"
            raise QuickstartError(f"there is no quickstart model '{name}'{known}")
    chosen = select(names)
    if names and chosen.left_out:
        raise QuickstartError("\n".join(f"'{name}' cannot be written: {why}" for name, why in chosen.left_out.items()))
    return chosen


def _described(model: ExampleModel) -> str:
    needs = ", ".join(package.module for package in model.packages)
    return f"{model.name:<30}{model.summary}{f' (needs {needs})' if needs else ''}\n"

"""The programs of a name on the path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def found(name: str) -> list[Path]:
    """All programs of a name, in the order in which a shell looks for them."""
    folders = dict.fromkeys(os.environ.get("PATH", os.defpath).split(os.pathsep))
    programs = (shutil.which(name, path=folder) for folder in folders if folder)
    return [Path(program) for program in programs if program is not None]


def others(name: str, own: str) -> list[Path]:
    """The programs of a name beside ``own``, by which this one was started."""
    mine = Path(shutil.which(own) or own).resolve()
    return [program for program in found(name) if program.resolve() != mine]


def is_own(program: Path) -> bool:
    """Whether a program is one that this package installed: a short script that imports it."""
    try:
        with program.open("rb") as file:
            return b"naiad_compat" in file.read(4096)
    except OSError:
        return False

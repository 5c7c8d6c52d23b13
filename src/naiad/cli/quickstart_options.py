"""The options of ``naiad quickstart``."""

from __future__ import annotations

import argparse
from typing import Final

_USAGE: Final = """\
naiad quickstart [OPTION ...] DIR

Writes a model repository with the models of the field's tutorials into DIR, without a network: simple, densenet_onnx,
inception_onnx, linear_model and more, each with a configuration, and a README with commands. A model whose packages are
not installed is left out by name."""

OPTIONS: Final = {
    "--models": "the models to write, separated by commas; their members come with ensembles",
    "--force": "write into a folder with models: those of the same name are replaced, the rest stays",
    "--list": "list the models and the packages that they need, and write nothing",
}
"""What each is for."""
FLAGS: Final = frozenset({"--force", "--list"})
"""Those that take no value."""


def parser() -> argparse.ArgumentParser:
    """The parser of the command's options."""
    made = argparse.ArgumentParser("naiad quickstart", usage=_USAGE, allow_abbrev=False)
    made.add_argument("folder", metavar="DIR", nargs="?", help="the repository: a new or an empty folder")
    for option, text in OPTIONS.items():
        if option in FLAGS:
            made.add_argument(option, action="store_true", help=text)
        else:
            made.add_argument(option, type=_names, metavar="A,B", help=text)
    return made


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))

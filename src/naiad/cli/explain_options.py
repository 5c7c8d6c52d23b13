"""The options that ``naiad explain`` has beside those of ``naiad check``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from naiad.options import CHECK_OPTIONS

_USAGE: Final = """\
naiad explain [OPTION ...] MODEL

Shows every field of a model's configuration as the server completes it: its value, where the value comes from, what the
field does, and the metric that shows it. MODEL is the folder of a model or a model file; with --model-repository or
--url it is a name. Offline, the options of naiad check can be given, too."""

OWN_OPTIONS: Final = {
    "--url": "the address of a server, such as http://localhost:8000",
    "--model-version": "the version; the latest one by default",
    "--field": "one field, such as dynamic_batching",
    "--header": "a header for the server, such as 'Authorization: Bearer KEY'; may be repeated",
    "--json": "JSON in place of text",
}
"""What each is for."""
FLAGS: Final = frozenset({"--json"})
"""Those that take no value."""


def parser() -> argparse.ArgumentParser:
    """The parser of the command's own options."""
    made = argparse.ArgumentParser("naiad explain", usage=_USAGE, allow_abbrev=False)
    made.set_defaults(of_check=())
    made.add_argument("model", metavar="MODEL", help="a folder or a file of a model, or a name")
    for option, text in OWN_OPTIONS.items():
        if option in FLAGS:
            made.add_argument(option, action="store_true", help=text)
        elif option == "--model-version":
            made.add_argument(option, type=int, default=0, metavar="N", help=text)
        elif option == "--header":
            made.add_argument("-H", option, action="append", default=[], metavar="LINE", help=text)
        else:
            made.add_argument(option, default="", help=text)
    # Known here for their values, which would else be taken for MODEL; the reader of the options reads them.
    for known in CHECK_OPTIONS:
        made.add_argument(
            known.flag, action=_Forwarded, nargs=0 if known.kind.is_flag else None, help=argparse.SUPPRESS
        )
    return made


class _Forwarded(argparse.Action):
    """Collects options of ``naiad check`` as they were written, in ``of_check``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        word = f"{option_string}={values}" if isinstance(values, str) else str(option_string)
        namespace.of_check = (*namespace.of_check, word)

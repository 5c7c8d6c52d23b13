"""Write the manual pages of docs/man from the help texts of the commands. scripts/docs runs this.

Usage: man_pages.py FOLDER
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from naiad.cli.main import COMMANDS, main
from naiad.version import __version__

HEADING = re.compile(r"[A-Za-z][\w ]*:$")
ENTRY = re.compile(r" {2}(\S.*?)(?: {2,}(\S.*))?$")
# argparse wraps at the width of the terminal.
WIDTH = "100"


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    about = "an inference server that speaks the protocols of Triton"
    found = {"naiad.1": page("naiad", about, help_of([]))}
    for name, (_, summary) in COMMANDS.items():
        found[f"naiad-{name}.1"] = page(f"naiad-{name}", summary, help_of([name]))
    return found


def help_of(words: list[str]) -> str:
    """The help text of a command."""
    os.environ["COLUMNS"] = WIDTH
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return printed.getvalue()


def page(name: str, summary: str, text: str) -> str:
    """A manual page in the macros of man."""
    usage, _, rest = text.partition("\n\n")
    head = f'.TH {name.upper()} 1 "" "Naiad {__version__}" "Naiad"\n.SH NAME\n{name} \\- {escaped(summary)}\n'
    synopsis = "\n.br\n".join(escaped(line.strip()) for line in re.sub("^[Uu]sage: ", "", usage).splitlines())
    return f"{head}.SH SYNOPSIS\n{synopsis}\n.SH DESCRIPTION\n" + "".join(f"{line}\n" for line in body(rest))


def body(text: str) -> Iterator[str]:
    """The lines of a page after its synopsis: headings, paragraphs, and options with what they do."""
    for line in text.splitlines():
        if HEADING.match(line):
            yield f".SH {escaped(line.removesuffix(':').upper())}"
        elif (entry := ENTRY.match(line)) is not None:
            yield ".TP"
            yield f"\\fB{escaped(entry[1])}\\fR"
            if entry[2]:
                yield escaped(entry[2])
        elif line.strip():
            yield escaped(line.strip())
        else:
            yield ".PP"


def escaped(text: str) -> str:
    """A text whose backslashes, hyphens, and leading dots and quotes are no macros."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)

"""The options of ``naiad perf`` as a person reads them: the help text, and the table of the documentation."""

from __future__ import annotations

import textwrap
from typing import Final

from naiad.perf.options.option import PerfGroup, PerfOption
from naiad.perf.options.table import OPTIONS

WIDTH: Final = 100
_HEAD: Final = """\
Usage: naiad perf -m MODEL [OPTION ...]
       naiad perf --compare A.json B.json ...
       naiad perf advise MODEL [OPTION ...]

Measures the rate and the latencies of a model as its clients see them. The options are those of
perf_analyzer, with some more. A value follows after "=" or as the next word; a long name may be cut
as long as it stays unambiguous.
"""
_OWN_WORDS: Final = (
    "  -h, -?, --help\n        Show this text and exit.\n  --version\n        Show the version and exit.\n"
)
_NOTE: Final = (
    "An option with a variable in brackets can also be set in the environment; ';' separates the values of one that "
    "may be repeated there. The command line wins."
)


def usage() -> str:
    """The help text."""
    return "\n".join([_HEAD, *map(_group_help, PerfGroup), textwrap.fill(_NOTE, WIDTH) + "\n"])


def option_table_markdown() -> str:
    """All options as one markdown table for the documentation."""
    head = "| group | option | default | environment variable | meaning |\n|---|---|---|---|---|\n"
    return head + "".join(_markdown_row(option) for option in OPTIONS)


def _group_help(group: PerfGroup) -> str:
    lines = [option_help(option) for option in OPTIONS if option.group is group]
    return f"{group.value}:\n{_OWN_WORDS if group is PerfGroup.GENERAL else ''}{''.join(lines)}"


def option_help(option: PerfOption) -> str:
    """The lines of the help text about one option."""
    variable = f"  [{option.variable}]" if option.variable else ""
    head = f"  {_names(option)}{variable}"
    if len(head) > WIDTH:
        head = f"  {_names(option)}\n        {variable.strip()}"
    text = option.help + _repeat(option) + (f" (default: {option.default})" if option.default else "")
    body = textwrap.fill(text, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False)
    return f"{head}\n{body}\n"


def _names(option: PerfOption) -> str:
    label = f"[={option.kind.label}]" if option.kind.is_optional else f" {option.kind.label}"
    return ", ".join(f"{flag}{label}".rstrip() for flag in reversed(option.flags))


def _repeat(option: PerfOption) -> str:
    return " May be repeated." if option.is_repeatable and option.kind.label else ""


def _markdown_row(option: PerfOption) -> str:
    cells = (
        option.group.value,
        f"`{_names(option)}`",
        f"`{option.default}`" if option.default else "",
        f"`{option.variable}`" if option.variable else "",
        option.help + _repeat(option),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

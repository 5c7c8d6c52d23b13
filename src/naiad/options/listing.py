"""The options as a person reads them: help texts, the table of the documentation, the table at the start."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from naiad.options.check import CHECK_OPTIONS
from naiad.options.command_line import VARIABLE_SEPARATOR
from naiad.options.kinds import BackendSetting
from naiad.options.option import Group, Option
from naiad.options.server import OPTIONS, ServerOptions

_WIDTH = 100

_SERVE = """\
Usage: naiad serve [OPTION ...] [MODEL ...]

Serves models over HTTP and gRPC until it is told to stop. MODEL is a model file (model.onnx, model.pt), the folder
of one model, or a repository: a folder with one folder per model.
"""

_CHECK = """\
Usage: naiad check [OPTION ...] MODEL ...

Loads models without serving them and shows everything that is wrong with each, then its completed configuration.
MODEL is a model file, the folder of one model, or a repository. Exit code 1 when anything is wrong.
"""


def serve_help() -> str:
    """The help text of ``naiad serve``."""
    return _help(_SERVE, OPTIONS)


def check_help() -> str:
    """The help text of ``naiad check``."""
    return _help(_CHECK, CHECK_OPTIONS)


def option_table_markdown() -> str:
    """All options as one markdown table for the documentation."""
    head = "| group | option | default | environment variable | meaning |\n|---|---|---|---|---|\n"
    return head + "".join(_markdown_row(o) for o in _in_order(OPTIONS))


def option_rows(options: ServerOptions) -> list[tuple[str, str]]:
    """Every option's field name and its value in ``options`` as text, in the order of the help text."""
    return [(o.field, _shown(getattr(options, o.field))) for o in _in_order(OPTIONS)]


def _in_order(options: Iterable[Option]) -> list[Option]:
    groups = list(Group)
    return sorted(options, key=lambda o: groups.index(o.group))


def _help(usage: str, options: Sequence[Option]) -> str:
    note = (
        f"Each option can also be given as the environment variable in brackets; there '{VARIABLE_SEPARATOR}' divides "
        "the values of an option that may be repeated. The command line wins."
    )
    parts = [usage, *(_group_help(g, options) for g in Group), textwrap.fill(note, _WIDTH) + "\n"]
    return "\n".join(part for part in parts if part)


def _group_help(group: Group, options: Sequence[Option]) -> str:
    members = [o for o in options if o.group is group]
    lines = [_option_help(o) for o in members]
    if group is Group.SERVER:
        lines.insert(0, "  -h, --help\n        Show this text and exit.\n")
    return f"{group.value}:\n" + "".join(lines) if members else ""


def _option_help(option: Option) -> str:
    head = f"  {_usage(option)}  [{option.variable}]"
    if len(head) > _WIDTH:
        head = f"  {_usage(option)}\n        [{option.variable}]"
    default = _shown(option.default)
    repeat = " May be repeated." if option.repeatable else ""
    text = option.help + repeat + (f" (default: {default})" if default else "")
    # Not broken at hyphens: the name of an option stays in one line.
    body = textwrap.fill(text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False)
    return f"{head}\n{body}\n"


def _usage(option: Option) -> str:
    names = [option.flag, *("--" + alias.replace("_", "-") for alias in option.aliases)]
    return ", ".join(f"{name} {option.kind.label}".rstrip() for name in names)


def _markdown_row(option: Option) -> str:
    default = _shown(option.default)
    cells = (
        option.group.value,
        f"`{_usage(option)}`",
        f"`{default}`" if default else "",
        f"`{option.variable}`",
        option.help + (" May be repeated." if option.repeatable else ""),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _shown(value: Any) -> str:
    """A value as it would be written on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, BackendSetting):
        return f"{value.backend},{value.key}={value.value}".removeprefix(",")
    if isinstance(value, tuple):
        return " ".join(_shown(v) for v in value)
    return str(value)

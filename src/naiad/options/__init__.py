"""The options of the server, each declared once in ``server.py``.

Parsing, help, environment variables, validation and documentation derive from that table.
"""

from naiad.options.check import CHECK_OPTIONS, parse_check
from naiad.options.command_line import parse, wants_help
from naiad.options.kinds import INT32_MAX
from naiad.options.listing import check_help, option_rows, option_table_markdown, serve_help
from naiad.options.option import Group, Option
from naiad.options.server import OPTIONS, ServerOptions

__all__ = [
    "CHECK_OPTIONS",
    "INT32_MAX",
    "OPTIONS",
    "Group",
    "Option",
    "ServerOptions",
    "check_help",
    "option_rows",
    "option_table_markdown",
    "parse",
    "parse_check",
    "serve_help",
    "wants_help",
]

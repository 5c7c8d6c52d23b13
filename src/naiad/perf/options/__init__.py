"""The command line of ``naiad perf``, read into settings.

Each option is declared once, in the tables of ``table``. Reading, help, completion and documentation derive from them.
"""

from naiad.perf.options.advise import advise_usage, parse_advise
from naiad.perf.options.complete import complete_settings
from naiad.perf.options.error import EXIT_CODE, PerfOptionError
from naiad.perf.options.listing import option_table_markdown, usage
from naiad.perf.options.option import PerfGroup, PerfOption
from naiad.perf.options.parse import parse_perf, wants_help, wants_version
from naiad.perf.options.table import OPTIONS
from naiad.perf.options.values import swept_shapes

__all__ = [
    "EXIT_CODE",
    "OPTIONS",
    "PerfGroup",
    "PerfOption",
    "PerfOptionError",
    "advise_usage",
    "complete_settings",
    "option_table_markdown",
    "parse_advise",
    "parse_perf",
    "swept_shapes",
    "usage",
    "wants_help",
    "wants_version",
]

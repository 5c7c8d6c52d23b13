"""All options of ``naiad perf``."""

from __future__ import annotations

from typing import Final

from naiad.perf.options.general_options import GENERAL, REQUEST, SERVER
from naiad.perf.options.load_options import LOAD, MEASUREMENT, SEQUENCES
from naiad.perf.options.option import PerfOption
from naiad.perf.options.report_options import DEPRECATED, INPUT, METRICS, REPORT, TRACE

OPTIONS: Final[tuple[PerfOption, ...]] = (
    *GENERAL,
    *MEASUREMENT,
    *LOAD,
    *SEQUENCES,
    *INPUT,
    *REQUEST,
    *SERVER,
    *METRICS,
    *REPORT,
    *TRACE,
    *DEPRECATED,
)
"""In the order of the help text."""

BY_NAME: Final = {option.name: option for option in OPTIONS if option.name}
BY_LETTER: Final = {option.letter: option for option in OPTIONS if option.letter}

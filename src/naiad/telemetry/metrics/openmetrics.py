"""The page in the OpenMetrics format, which has exemplars.

Source: OpenMetrics 1.0. There the sample of a counter has to end in ``_total``. The names of the reference do not, and
dashboards know these names: such a counter is of the type "unknown" here, which keeps its name.
"""

from __future__ import annotations

from typing import Final

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END: Final = b"# EOF\n"
_TOTAL: Final = "_total"
_WITH_TEXT: Final = frozenset({"text/plain", "text/*", "*/*"})
"""Offers of ``Accept`` that the text format fulfils."""


def wants_openmetrics(accept: str, exemplars: bool) -> bool:
    """Whether a scraper gets OpenMetrics 1 and not the text format 0.0.4, by its header ``Accept``.

    With ``exemplars`` it gets what it prefers. Without, the text format says more, namely which metrics are counters;
    and between the two may be a program that passes the header on and reads the text format alone. So a scraper gets
    OpenMetrics then only if it takes nothing else.
    """
    offers = {kind: quality for kind, quality in map(_offer, accept.lower().split(",")) if quality > 0}
    found = offers.get("application/openmetrics-text", 0.0)
    if exemplars:
        return found > 0 and found >= offers.get("text/plain", 0.0)
    return found > 0 and not offers.keys() & _WITH_TEXT


def _offer(text: str) -> tuple[str, float]:
    kind, *parameters = (part.strip() for part in text.split(";"))
    named = dict(p.split("=", 1) for p in parameters if "=" in p)
    if named.get("version", "1.0.0") not in ("1.0.0", "0.0.4") and kind.startswith("application/openmetrics"):
        return kind, 0.0
    try:
        return kind, float(named.get("q", "1"))
    except ValueError:
        return kind, 0.0


def openmetrics_part(part: str) -> str:
    """A part of a page of the text format 0.0.4, of whole lines, as OpenMetrics 1.0, whose pages have ``END`` behind.

    The help and the type of a family are in one part.
    """
    if "# TYPE " not in part:
        return part
    lines = part.splitlines()
    for place, line in enumerate(lines):
        if line.startswith("# TYPE ") and line.endswith(" counter"):
            name = line.split()[2]
            if not name.endswith(_TOTAL):
                lines[place] = f"# TYPE {name} unknown"
                continue
            # The family is named without the ending; its help stands in the line before.
            family = name.removesuffix(_TOTAL)
            lines[place] = f"# TYPE {family} counter"
            lines[place - 1] = lines[place - 1].replace(f"# HELP {name} ", f"# HELP {family} ", 1)
    return "\n".join((*lines, ""))
